"""Reader of a state topic on Kafka; imported for a Kafka address only."""

from collections.abc import Iterator

from rota import errors

try:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException
    from confluent_kafka import TopicPartition as KafkaTopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec
except ImportError as error:
    raise errors.NotSupported("a Kafka address needs confluent-kafka: pip install 'rota[kafka]'") from error

from rota.clocks import system_clocks
from rota.producer.connections import kafka_client
from rota.producer.kafka_errors import error_from, error_in
from rota.producer.options import Options
from rota.stores.errors import StateUnreadable

RECORDS_AT_ONCE = 500
WAIT_S = 0.2
# confluent-kafka has no type annotations for it.
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class KafkaReader:
    """Reads a topic of Kafka brokers; joins no group."""

    def __init__(self, address: str, options: Options, topic: str) -> None:
        connection = kafka_client(options, address)
        self._admin = AdminClient(connection)  # type: ignore[arg-type]  # callbacks are missing in its types
        self._consumer = Consumer(
            {
                **connection,
                # librdkafka requires a group, and uses it for commits only.
                "group.id": "rota-state",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
            }
        )
        self._topic = topic
        self._clock = system_clocks().monotonic_s

    def read(self, partition: int, within_s: float) -> Iterator[tuple[bytes | None, bytes | None]]:
        here = KafkaTopicPartition(self._topic, partition)
        end = self._end(here, within_s)
        self._consumer.assign([KafkaTopicPartition(self._topic, partition, OFFSET_BEGINNING)])
        offset, deadline_s = 0, self._clock() + within_s
        while offset < end:
            before = offset
            for message in self._consumer.consume(RECORDS_AT_ONCE, WAIT_S):
                failed = message.error()
                if failed is None:
                    yield _bytes(message.key()), _bytes(message.value())
                    offset = (message.offset() or 0) + 1
                elif failed.code() == KafkaError._PARTITION_EOF:
                    # Behind markers of transactions, which consumers never see.
                    offset = max(offset, message.offset() or 0)
                else:
                    raise error_from(failed, f"{self._topic}-{partition}")
            if offset > before:
                deadline_s = self._clock() + within_s
            elif offset < end and self._clock() > deadline_s:
                raise StateUnreadable(self._topic, partition, offset)
        self._consumer.unassign()

    def _end(self, here: KafkaTopicPartition, within_s: float) -> int:
        """Return the end of the partition, open transactions included."""
        level = IsolationLevel.READ_UNCOMMITTED
        try:
            (answer,) = self._admin.list_offsets({here: LATEST}, isolation_level=level).values()
            end: int = answer.result(within_s).offset
        except KafkaException as failed:
            raise error_in(failed, f"{here.topic}-{here.partition}") from failed
        return end

    def close(self) -> None:
        self._consumer.close()


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
