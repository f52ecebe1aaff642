"""Apache Kafka for tests: real brokers on this machine, by `running` in tests, by `up` for people."""

from tests.support.kafka.brokers import Kafka, prepare, running
from tests.support.kafka.layout import MORTAL

__all__ = ["MORTAL", "Kafka", "prepare", "running"]
