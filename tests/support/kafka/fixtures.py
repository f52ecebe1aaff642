"""Fixtures for tests against Apache Kafka."""
