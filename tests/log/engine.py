"""The log's core with a list for a file: what the tests of `tests/log` drive. Writes may wait, and may be lost."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple, TypeVar

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.batch import Header, Row
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.effects import Effects, Ending
from rota_coordinator.core.log.log import Log
from rota_coordinator.core.log.partition import Partition
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent
from rota_proto.log.columns import Columns, pack
from rota_proto.log.v1 import log_pb2 as pb

T = TypeVar("T")
START_MS = 1_790_000_000_000
TIMEOUT_MS = 60_000
TOPIC = "orders"
COPIER = "copier"


class Producer(NamedTuple):
    """Identity of a producer."""

    producer_id: int = -1
    epoch: int = -1
    transactional_id: str = ""


NO_IDENTITY = Producer()


class Engine:
    """One log, and everything that it wanted written, in order."""

    def __init__(self, config: LogConfig | None = None, *, writes_at_once: bool = True) -> None:
        self.config = config or LogConfig()
        self.now_ms = START_MS
        self.writes_at_once = writes_at_once
        self.writes: list[Effects] = []
        self.in_file = 0
        self.log = self.read()
        self._topic_ids = count(1)

    @property
    def events(self) -> list[LogEvent]:
        return [event for effects in self.writes for event in effects.events]

    @property
    def rows(self) -> list[Row]:
        return [row for effects in self.writes for row in effects.rows]

    @property
    def endings(self) -> list[Ending]:
        return [ending for effects in self.writes for ending in effects.endings]

    def decide(self, decide: Callable[[Effects], T]) -> T:
        """Return the core's response and the writes that it requests."""
        effects = Effects()
        reply = decide(effects)
        self.writes.append(effects)
        if self.writes_at_once:
            self.write()
        return reply

    def write(self, until: int | None = None) -> None:
        """Write the pending batches to the file."""
        until = len(self.writes) if until is None else until
        for effects in self.writes[self.in_file : until]:
            self.log.written(effects.rows)
        self.in_file = max(self.in_file, until)

    def read(self, events: Sequence[LogEvent] | None = None) -> Log:
        """Another log that reads the file: all events first, then all headers, each log's by offset."""
        log = Log(self.config)
        for event in self.events if events is None else events:
            log.replay(event)
        for row in sorted(self.rows, key=lambda row: (row.log_id, row.header.base_offset)):
            log.replay_batch(row.log_id, row.header)
        log.loaded(WallMs(self.now_ms))
        return log

    def crash(self) -> None:
        """Lose the pending writes; a new process reads the file."""
        del self.writes[self.in_file :]
        self.log = self.read()

    def topic_id(self) -> bytes:
        return next(self._topic_ids).to_bytes(16, "big")

    def create(
        self, name: str = TOPIC, partitions: int = 1, retention_ms: int = -1, retention_bytes: int = -1
    ) -> pb.TopicResult:
        request = pb.CreateTopicsRequest()
        request.topics.add(
            name=name, partitions=partitions, retention_ms=retention_ms, retention_bytes=retention_bytes
        )
        (topic,) = self.decide(lambda effects: self.log.create_topics(request, self.topic_id, effects)).topics
        return topic

    def delete(self, name: str = TOPIC) -> pb.TopicResult:
        request = pb.DeleteTopicsRequest(names=[name])
        (topic,) = self.decide(lambda effects: self.log.delete_topics(request, effects)).topics
        return topic

    def grow(self, name: str, partitions: int) -> pb.TopicResult:
        request = pb.CreatePartitionsRequest()
        request.topics.add(name=name, partitions=partitions)
        (topic,) = self.decide(lambda effects: self.log.create_partitions(request, effects)).topics
        return topic

    def alter(
        self, name: str, retention_ms: int | None = None, retention_bytes: int | None = None
    ) -> pb.TopicResult:
        request = pb.AlterTopicsRequest()
        request.topics.add(name=name, retention_ms=retention_ms, retention_bytes=retention_bytes)
        (topic,) = self.decide(lambda effects: self.log.alter_topics(request, effects)).topics
        return topic

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        found = self.log.partition(topic, index)
        assert isinstance(found, Partition)
        return found

    def headers(self, index: int = 0) -> list[Header]:
        """All that was ever appended to a partition."""
        log_id = self.partition(index).log_id
        return [row.header for row in self.rows if row.log_id == log_id]

    def produce(
        self, producer: Producer = NO_IDENTITY, sequence: int = -1, records: int = 1, index: int = 0
    ) -> pb.ProduceResponse.Partition:
        """Send one batch."""
        return self.send(batch(producer, sequence, records), producer=producer, index=index)

    def send(
        self,
        *batches: pb.RecordBatch,
        producer: Producer = NO_IDENTITY,
        index: int = 0,
        topic_id: bytes = b"",
    ) -> pb.ProduceResponse.Partition:
        """Send these."""
        asked = pb.ProduceRequest.Partition(topic=TOPIC, index=index, batches=batches, topic_id=topic_id)
        return self.decide(
            lambda effects: self.log.append(asked, producer.transactional_id, WallMs(self.now_ms), effects)
        )

    def init(self, transactional_id: str = COPIER, timeout_ms: int = TIMEOUT_MS) -> Producer:
        """Become a producer."""
        reply = self.ask_init(transactional_id, timeout_ms)
        assert not reply.error_code
        return Producer(reply.producer_id, reply.producer_epoch, transactional_id)

    def ask_init(
        self, transactional_id: str = COPIER, timeout_ms: int = TIMEOUT_MS
    ) -> pb.InitProducerResponse:
        request = pb.InitProducerRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        return self.decide(lambda effects: self.log.init_producer(request, WallMs(self.now_ms), effects))

    def add_group(
        self, producer: Producer, group_id: str = "group", generation: int = 3, member: str = "member"
    ) -> codes.ErrorCode.ValueType:
        """Make a group part of the transaction."""
        request = pb.AddOffsetsToTransactionRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
            generation_id=generation,
            member_id=member,
        )
        return self.decide(
            lambda effects: self.log.add_offsets(request, WallMs(self.now_ms), effects)
        ).error_code

    def offsets_error(
        self, producer: Producer, group_id: str = "group", generation: int = 3, member: str = "member"
    ) -> codes.ErrorCode.ValueType:
        """May the member commit offsets in the transaction."""
        return self.log.txn_offsets_error(
            codes.TxnCommitOffsetsRequest(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id=group_id,
                generation_id=generation,
                member_id=member,
            )
        )

    def end(
        self, producer: Producer, *, commit: bool, refused: codes.ErrorCode.ValueType = codes.NONE
    ) -> pb.EndTransactionResponse:
        """End the transaction."""
        request = pb.EndTransactionRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            commit=commit,
        )
        return self.decide(lambda effects: self.log.end(request, refused, WallMs(self.now_ms), effects))

    def ended(self, producer: Producer, *, commit: bool) -> Producer:
        """End the transaction, and be who goes on."""
        reply = self.end(producer, commit=commit)
        assert not reply.error_code
        return Producer(reply.producer_id, reply.producer_epoch, producer.transactional_id)

    def pass_time(self, ms: int) -> None:
        """Time goes by, and what is due is done."""
        self.now_ms += ms
        wake_at_ms = self.log.wake_at_ms()
        if wake_at_ms is not None and wake_at_ms <= self.now_ms:
            self.decide(lambda effects: self.log.expire(WallMs(self.now_ms), effects))

    def delete_records(self, before_offset: int, index: int = 0) -> pb.DeleteRecordsResponse.Partition:
        request = pb.DeleteRecordsRequest()
        request.partitions.add(topic=TOPIC, index=index, before_offset=before_offset)
        (partition,) = self.decide(lambda effects: self.log.delete_records(request, effects)).partitions
        return partition


def batch(producer: Producer = NO_IDENTITY, sequence: int = -1, records: int = 1) -> pb.RecordBatch:
    """Some records."""
    return pb.RecordBatch(
        count=records,
        payload=pack(Columns(values=[b"?"] * records), records, START_MS),
        base_timestamp_ms=START_MS,
        max_timestamp_ms=START_MS,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=bool(producer.transactional_id),
    )
