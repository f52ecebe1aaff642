"""Topics and records on Kafka brokers."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._records import DeletedRecords
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from typing_extensions import override

import rota
from rota.producer.options import OnDelivery
from rota.records import Headers, Record, TopicPartition
from rota_cli.clusters.kafka.brokers import Brokers
from rota_cli.clusters.model import OffsetRange, Topic, TopicConfig
from rota_cli.clusters.port import FetchResult, Offsets, Records
from rota_cli.errors import unknown_topic

# Prefix of Kafka's internal topics.
INTERNAL = "__"
FETCH_RECORDS_MAX = 500
RECORD_BYTES_MAX = 100 << 20
# librdkafka accepts no longer one.
REQUEST_TIMEOUT_MAX_MS = 900_000
# confluent-kafka has no type annotations for these two.
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
WAIT_S = 0.5


class KafkaRecords(Records):
    """The topics of a Kafka cluster."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._consumers: list[Consumer] = []

    @override
    def topics(self, names: Sequence[str] = ()) -> list[Topic]:
        brokers = self._brokers
        try:
            found = brokers.admin.list_topics(timeout=brokers.connection.timeout_s).topics
        except KafkaException as error:
            raise brokers.translate_error(error) from None
        missing = [name for name in names if name not in found]
        if missing:
            raise unknown_topic(missing, brokers.connection.servers)
        wanted = names or sorted(name for name in found if not name.startswith(INTERNAL))
        return [Topic(name, len(found[name].partitions)) for name in sorted(wanted)]

    @override
    def create(self, topic: Topic) -> None:
        wanted = NewTopic(topic.name, num_partitions=topic.partitions, config=_entries(topic.config))
        self._brokers.result(lambda: self._brokers.admin.create_topics([wanted])[topic.name])

    @override
    def add_partitions(self, topic: str, partitions: int) -> None:
        wanted = NewPartitions(topic, partitions)
        self._brokers.result(lambda: self._brokers.admin.create_partitions([wanted])[topic])

    @override
    def alter(self, topic: str, config: TopicConfig) -> None:
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in _entries(config).items()
        ]
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)

        def ask() -> "Future[None]":
            (answer,) = self._brokers.admin.incremental_alter_configs([wanted]).values()
            return answer

        self._brokers.result(ask)

    @override
    def delete(self, names: Sequence[str]) -> None:
        # All or none: an unknown topic is most likely a typing error.
        self.topics(names)
        for name in names:
            self._brokers.result(lambda: self._brokers.admin.delete_topics([name])[name])  # noqa: B023  awaited here

    @override
    def delete_records(self, partition: TopicPartition, before: int) -> int:
        def ask() -> Future[DeletedRecords]:
            (answer,) = self._brokers.admin.delete_records([KafkaTopicPartition(*partition, before)]).values()
            return answer

        return self._brokers.result(ask).low_watermark

    @override
    def ranges(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetRange]:
        asked = list(partitions)
        starts = self._offsets(asked, EARLIEST, read_committed=read_committed)
        ends = self._offsets(asked, LATEST, read_committed=read_committed)
        return {each: OffsetRange(starts[each], ends[each]) for each in asked}

    @override
    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        return self._offsets(list(partitions), OffsetSpec.for_timestamp(timestamp_ms))

    def _offsets(
        self, partitions: Sequence[TopicPartition], which: OffsetSpec, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        asked = {KafkaTopicPartition(*each): which for each in partitions}
        answers = self._brokers.admin.list_offsets(asked, isolation_level=level)
        return {
            TopicPartition(partition.topic, partition.partition): self._brokers.result(lambda: answer).offset  # noqa: B023
            for partition, answer in answers.items()
        }

    @override
    def timestamps(self, offsets: Offsets, *, read_committed: bool = False) -> dict[TopicPartition, int]:
        if not offsets:
            return {}
        found: dict[TopicPartition, int] = {}
        consumer = self._consumer(offsets, read_committed=read_committed)
        left = set(offsets)
        deadline_s = self._brokers.clocks.monotonic_s() + self._brokers.connection.timeout_s
        while left:
            if self._brokers.clocks.monotonic_s() > deadline_s:
                raise self._brokers.timeout_error("no records received")
            for message in consumer.consume(FETCH_RECORDS_MAX, WAIT_S):
                here = self._partition_of(message)
                if here not in left:
                    continue
                if message.error() is None:
                    found[here] = message.timestamp()[1]
                left.discard(here)
                consumer.incremental_unassign([KafkaTopicPartition(*here)])
        return found

    @override
    def unreadable(self, offsets: Offsets) -> Offsets:
        # Finding out would take a consumer and a record of each partition; the sidecars report it.
        return {}

    @override
    def read(self, offsets: Offsets, *, read_committed: bool) -> Iterator[FetchResult]:
        consumer = self._consumer(offsets, read_committed=read_committed)
        while True:
            positions: dict[TopicPartition, int] = {}
            records = []
            for message in consumer.consume(FETCH_RECORDS_MAX, WAIT_S):
                here = self._partition_of(message)
                if message.error() is None:
                    records.append(_record(message))
                    positions[here] = records[-1].offset + 1
                else:
                    # The end of the partition, which may be after control markers that consumers never see.
                    positions[here] = message.offset() or 0
            yield FetchResult(records, positions)

    def _partition_of(self, message: Message) -> TopicPartition:
        """Return the partition of a message; raise its error unless it is the end of the partition."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise self._brokers.translate_error(KafkaException(error))
        return TopicPartition(message.topic() or "", message.partition() or 0)

    def _consumer(self, offsets: Offsets, *, read_committed: bool) -> Consumer:
        # The consumer joins no group: librdkafka requires the name and uses it for commits only.
        consumer = Consumer(
            {
                **self._brokers.config(),
                "group.id": "rota-cli",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            }
        )
        self._consumers.append(consumer)
        consumer.assign([KafkaTopicPartition(*each, offset) for each, offset in offsets.items()])
        return consumer

    @override
    def producer(self, on_delivery: OnDelivery) -> rota.Producer:
        within_ms = self._brokers.connection.timeout_s * 1000
        return rota.Producer(
            self._brokers.connection.servers,
            kafka_config=self._brokers.config(),
            on_delivery=on_delivery,
            max_block_ms=within_ms,
            request_timeout_ms=min(within_ms, REQUEST_TIMEOUT_MAX_MS),
            delivery_timeout_ms=within_ms,
        )

    @override
    def transactional_producer(self, transactional_id: str) -> rota.Producer:
        within_ms = self._brokers.connection.timeout_s * 1000
        return rota.Producer(
            self._brokers.connection.servers,
            # The broker decides which records of a topic are too large.
            kafka_config={**self._brokers.config(), "message.max.bytes": RECORD_BYTES_MAX},
            transactional_id=transactional_id,
            max_block_ms=within_ms,
            request_timeout_ms=min(within_ms, REQUEST_TIMEOUT_MAX_MS),
            delivery_timeout_ms=within_ms,
        )

    @override
    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()


def _entries(config: TopicConfig) -> dict[str, str]:
    """Return the entries of a topic's configuration, without what is None."""
    given = {name.replace("_", "."): value for name, value in asdict(config).items()}
    return {name: str(value) for name, value in given.items() if value is not None}


def _record(message: Message) -> Record:
    # A list of pairs, contrary to its annotation.
    headers: Headers = message.headers() or ()  # type: ignore[assignment]
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
    )
