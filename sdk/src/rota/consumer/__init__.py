"""Consumers: members of a group with the methods of Kafka's consumer. The public class is `rota.Consumer`."""
