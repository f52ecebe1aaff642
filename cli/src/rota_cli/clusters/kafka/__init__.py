"""Adapter of the port to Kafka brokers, through confluent-kafka."""
