"""Reading records as a member of a group, with the methods that Kafka's users know. `rota.Consumer` is the way in."""
