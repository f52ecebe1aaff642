"""Kafka's own brokers as the engine: coordination by the classic group protocol, topics by metadata."""
