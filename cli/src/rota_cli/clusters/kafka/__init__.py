"""The port on Kafka's brokers: confluent-kafka."""
