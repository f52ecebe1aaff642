"""
Creates topics on Kafka brokers, for `rota.create_topics`. Imported only for a Kafka address.

`rota topics` and Kafka's own tools describe, change and delete topics.
"""

from collections.abc import Mapping

from rota import errors

try:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
except ImportError as error:
    raise errors.NotSupported("a Kafka address needs confluent-kafka: pip install 'rota[kafka]'") from error

from rota.producer.kafka_errors import error_in

KafkaConfig = Mapping[str, str | int | float | bool]


def create(address: str, partitions: Mapping[str, int], kafka_config: KafkaConfig, within_s: float) -> None:
    """Create topics with so many partitions each and the brokers' default replication factor; existing topics are unchanged."""
    admin = AdminClient({"bootstrap.servers": address, **kafka_config})
    wanted = [NewTopic(name, count) for name, count in partitions.items()]
    made = admin.create_topics(wanted, operation_timeout=within_s, request_timeout=within_s)
    for name, future in made.items():
        try:
            future.result(within_s)
        except KafkaException as failed:
            error = error_in(failed, name)
            if error.code != errors.TopicAlreadyExists.code:
                raise error from failed
        except TimeoutError as silent:
            message = f"{address} did not answer within {within_s:g} s: check whether it is running"
            raise errors.TimedOut(message) from silent
