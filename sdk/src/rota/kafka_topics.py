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

from rota.oauth import Callback
from rota.producer.kafka_errors import error_in

KafkaConfig = Mapping[str, str | int | float | bool | Callback]


def create(
    address: str,
    partitions: Mapping[str, int],
    kafka_config: KafkaConfig,
    within_s: float,
    topic_config: Mapping[str, str] | None = None,
) -> None:
    """
    Create topics with so many partitions each and the brokers' default replication factor; existing topics are unchanged.

    `topic_config` has Kafka's settings of topics, such as `cleanup.policy`.
    """
    # Callbacks are missing in its types.
    admin = AdminClient({"bootstrap.servers": address, **kafka_config})  # type: ignore[dict-item]
    wanted = [NewTopic(name, count, config=dict(topic_config or {})) for name, count in partitions.items()]
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
