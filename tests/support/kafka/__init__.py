"""Apache Kafka for tests: real brokers on this machine, by `running` in tests, by `up` for people."""

from tests.support.kafka.brokers import Kafka, prepare, running

__all__ = ["Kafka", "prepare", "running"]
