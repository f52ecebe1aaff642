"""Topics and records of the embedded log, through the public SDK."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from typing_extensions import override

import rota
from rota import errors
from rota.log_reader import END, START, Fetched
from rota.producer.options import OnDelivery
from rota.records import TopicPartition
from rota.topics import TopicDescription
from rota_cli.clusters.connection import Connection
from rota_cli.clusters.model import OffsetRange, Topic, TopicConfig
from rota_cli.clusters.port import FetchResult, Offsets, Records
from rota_cli.clusters.rota.server import RotaServer
from rota_cli.errors import NotFound, unknown_topic
from rota_proto.coordinator.v1.admin_pb2 import DescribeSlotsRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub

# Maximum time for which a server delays an empty fetch response.
WAIT_MS = 500


class RotaRecords(Records):
    """The log of one server."""

    def __init__(self, connection: Connection, server: RotaServer) -> None:
        self._connection = connection
        self._server = server
        self._opened: rota.Topics | None = None
        self._readers: dict[bool, rota.LogReader] = {}

    @property
    def _topics(self) -> rota.Topics:
        if self._opened is None:
            self._check_reachable()
            self._opened = rota.Topics(
                self._connection.servers, credentials=sdk_credentials(self._connection)
            )
        return self._opened

    def _reader(self, *, read_committed: bool = False) -> rota.LogReader:
        if read_committed not in self._readers:
            self._check_reachable()
            self._readers[read_committed] = rota.LogReader(
                self._connection.servers,
                credentials=sdk_credentials(self._connection),
                read_committed=read_committed,
            )
        return self._readers[read_committed]

    def _check_reachable(self) -> None:
        # The SDK retries for 30 s when no server answers, as an application should. A command waits for
        # --timeout only.
        self._server.ask(lambda channel: AdminStub(channel).DescribeSlots, DescribeSlotsRequest())

    @override
    def topics(self, names: Sequence[str] = ()) -> list[Topic]:
        try:
            found = self._topics.describe(names)
        except errors.UnknownTopicOrPartition:
            raise self._missing(names) from None
        return sorted(map(_topic, found), key=lambda topic: topic.name)

    def _missing(self, names: Sequence[str]) -> NotFound:
        there = {topic.name for topic in self._topics.describe()}
        return unknown_topic([name for name in names if name not in there] or names, self._connection.servers)

    @override
    def create(self, topic: Topic) -> None:
        given = {name: value for name, value in asdict(topic.config).items() if value is not None}
        self._topics.create({topic.name: topic.partitions}, exist_ok=False, **given)

    @override
    def add_partitions(self, topic: str, partitions: int) -> None:
        self._topics.add_partitions({topic: partitions})

    @override
    def alter(self, topic: str, config: TopicConfig) -> None:
        self._topics.alter([topic], **asdict(config))

    @override
    def delete(self, names: Sequence[str]) -> None:
        # All or none: an unknown topic is most likely a typing error.
        self.topics(names)
        self._topics.delete(names)

    @override
    def delete_records(self, partition: TopicPartition, before: int) -> int:
        return self._topics.delete_records({partition: before})[partition]

    @override
    def ranges(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetRange]:
        asked = list(partitions)
        if not asked:
            return {}
        reader = self._reader(read_committed=read_committed)
        # The start first: records that are deleted between the two calls must not put it after the end.
        starts = reader.offsets_at(asked, START)
        ends = reader.offsets_at(asked, END)
        return {each: OffsetRange(starts[each], ends[each]) for each in asked}

    @override
    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        asked = list(partitions)
        return self._reader().offsets_at(asked, timestamp_ms) if asked else {}

    @override
    def timestamps(self, offsets: Offsets, *, read_committed: bool = False) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        positions = dict(offsets)
        while positions:
            # The next batch of each partition only; partitions that do not fit into a response come with the
            # next one.
            reader = self._reader(read_committed=read_committed)
            for part in reader.fetch(positions, max_wait_ms=0, partition_max_bytes=1):
                end = part.last_stable_offset if read_committed else part.high_watermark
                here = TopicPartition(part.topic, part.partition)
                if _offset_after_unreadable(part) is not None:
                    del positions[here]
                    continue
                first = next(iter(part), None)
                if first is not None:
                    found[here] = first.timestamp_ms
                if first is not None or part.next_offset >= end:
                    del positions[here]
                else:
                    positions[here] = part.next_offset
        return found

    @override
    def unreadable(self, offsets: Offsets) -> Offsets:
        if not offsets:
            return {}
        found = self._reader().fetch(offsets, max_wait_ms=0, partition_max_bytes=1)
        behind = {
            TopicPartition(part.topic, part.partition): _offset_after_unreadable(part) for part in found
        }
        return {here: offset for here, offset in behind.items() if offset is not None}

    @override
    def read(self, offsets: Offsets, *, read_committed: bool) -> Iterator[FetchResult]:
        reader = self._reader(read_committed=read_committed)
        positions = dict(offsets)
        while True:
            fetched = reader.fetch(positions, max_wait_ms=WAIT_MS)
            records = [record for part in fetched for record in part]
            positions |= {TopicPartition(part.topic, part.partition): part.next_offset for part in fetched}
            yield FetchResult(records, dict(positions))

    @override
    def producer(self, on_delivery: OnDelivery) -> rota.Producer:
        self._check_reachable()
        within_ms = self._connection.timeout_s * 1000
        return rota.Producer(
            self._connection.servers,
            credentials=sdk_credentials(self._connection),
            on_delivery=on_delivery,
            max_block_ms=within_ms,
            request_timeout_ms=within_ms,
            delivery_timeout_ms=within_ms,
        )

    @override
    def transactional_producer(self, transactional_id: str) -> rota.Producer:
        self._check_reachable()
        within_ms = self._connection.timeout_s * 1000
        return rota.Producer(
            self._connection.servers,
            credentials=sdk_credentials(self._connection),
            transactional_id=transactional_id,
            max_block_ms=within_ms,
            request_timeout_ms=within_ms,
            delivery_timeout_ms=within_ms,
        )

    @override
    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        for reader in self._readers.values():
            reader.close()


def _offset_after_unreadable(part: Fetched) -> int | None:
    """Return the offset after the first batch if that batch cannot be read; None if it can, or if there is none."""
    if isinstance(part.error, errors.CorruptMessage):
        return part.next_offset
    try:
        next(iter(part.batches[0]) if part.batches else iter(()), None)
    except (errors.CorruptMessage, errors.NotSupported):
        return part.batches[0].next_offset
    return None


def _topic(found: TopicDescription) -> Topic:
    config = TopicConfig(
        found.retention_ms, found.retention_bytes, found.cleanup_policy, found.delete_retention_ms
    )
    return Topic(found.name, found.partitions, config)


def sdk_credentials(connection: Connection) -> rota.Credentials:
    """The SDK's credentials for checked flags."""
    return rota.Credentials(
        ca_file=connection.trusted_ca_file,
        certificate_file=connection.certificate_file,
        key_file=connection.key_file,
        token_file=connection.token_file,
        insecure=connection.insecure,
    )
