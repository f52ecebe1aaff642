"""The committed offsets of one group, and those that an open transaction will commit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from rota_coordinator.core.group.config import PARTITIONS_MAX
from rota_coordinator.core.group.consumer_protocol import TopicPartition
from rota_coordinator.core.group.effects import Effects
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import (
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    ProducerEnded,
    Record,
)

NOTHING_COMMITTED = -1
UNKNOWN_EPOCH = -1


class Committed(NamedTuple):
    """A committed offset, and the position of its commit in write order, plain or transactional."""

    position: int
    offset: OffsetCommitted


class Pending(NamedTuple):
    """An offset of an open transaction, and the position of its commit in write order."""

    position: int
    offset: OffsetCommitted
    producer_epoch: int


@dataclass(slots=True)
class Offsets:
    """
    The offsets of one group; only `replay` changes them.

    Invariant: the committed offset of a partition is that of the latest commit, by position, among the plain commits and
    those of committed transactions. The order in which transactions end does not matter, as in Kafka.
    """

    committed: dict[TopicPartition, Committed] = field(default_factory=dict)
    # Producer id -> the offsets of its open transaction.
    pending: dict[int, dict[TopicPartition, Pending]] = field(default_factory=dict)
    _position: int = 0

    def is_empty(self) -> bool:
        return not self.committed and not self.pending

    def has_room_for(self, partition: TopicPartition) -> bool:
        """Return whether the limit allows an offset of the partition; an existing offset may always change."""
        if partition in self.committed:
            return True
        return len(self.committed) + sum(map(len, self.pending.values())) < PARTITIONS_MAX

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction holds an offset of the partition."""
        return any(partition in held for held in self.pending.values())

    def write(self, record: Record, effects: Effects) -> None:
        """Change offsets: add the record to the effects to be written, and replay it."""
        effects.records.append(record)
        self.replay(record)

    def write_commit(self, partition: TopicPartition, record: Record, effects: Effects) -> None:
        """Write the record of a commit of one partition; called for each partition of each commit."""
        effects.records.append(record)
        self._put(partition, record.offset_committed)

    def replay(self, record: Record) -> None:
        """Apply a record about offsets; other records are ignored."""
        match record.WhichOneof("record"):
            case "offset_committed":
                self.replay_commit(record.offset_committed)
            case "offset_removed":
                removed = record.offset_removed
                self._remove(TopicPartition(removed.topic, removed.partition))
            case "offset_pending":
                self._hold(record.offset_pending)
            case "producer_ended":
                self._end(record.producer_ended)
            case _:
                pass

    def replay_commit(self, offset: OffsetCommitted) -> None:
        """Apply a commit. Nearly all records of a log are commits, so loading calls this a million times."""
        self._put(TopicPartition(offset.topic, offset.partition), offset)

    def _put(self, partition: TopicPartition, offset: OffsetCommitted) -> None:
        self._position += 1
        self.committed[partition] = Committed(self._position, offset)

    def _hold(self, pending: OffsetPending) -> None:
        self._position += 1
        held = self.pending.setdefault(pending.producer_id, {})
        where = TopicPartition(pending.offset.topic, pending.offset.partition)
        held[where] = Pending(self._position, pending.offset, pending.producer_epoch)

    def _remove(self, partition: TopicPartition) -> None:
        self.committed.pop(partition, None)
        for producer_id in [producer for producer, held in self.pending.items() if partition in held]:
            del self.pending[producer_id][partition]
            if not self.pending[producer_id]:
                del self.pending[producer_id]

    def _end(self, ended: ProducerEnded) -> None:
        held = self.pending.pop(ended.producer_id, {})
        if not ended.committed:
            return
        for partition, pending in held.items():
            stored = self.committed.get(partition)
            if stored is None or stored.position < pending.position:
                # The position of the commit, not of the transaction's end: a transaction that ends later may hold a
                # later commit.
                self.committed[partition] = Committed(pending.position, pending.offset)

    def snapshot(self) -> list[Record]:
        """Return the records that restore the present state, in an order that preserves the positions of commits."""
        records = [
            (stored.position, Record(offset_committed=stored.offset)) for stored in self.committed.values()
        ]
        records += [
            (pending.position, Record(offset_pending=to_message(producer_id, pending)))
            for producer_id, held in self.pending.items()
            for pending in held.values()
        ]
        return [record for _, record in sorted(records, key=itemgetter(0))]

    def fetch(
        self, topics: Iterable[pb.TopicPartitions], *, require_stable: bool
    ) -> Iterator[pb.FetchedTopic]:
        """Return the committed offsets of these partitions."""
        for topic in topics:
            partitions = [
                self._fetched(TopicPartition(topic.name, index), topic.topic_id, require_stable)
                for index in topic.partitions
            ]
            yield pb.FetchedTopic(name=topic.name, partitions=partitions)

    def everything(self) -> list[pb.TopicPartitions]:
        """Return all partitions with a committed offset, grouped by topic."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.committed):
            topics.setdefault(topic, []).append(partition)
        return [pb.TopicPartitions(name=name, partitions=partitions) for name, partitions in topics.items()]

    def _fetched(
        self, partition: TopicPartition, topic_id: bytes, require_stable: bool
    ) -> pb.FetchedPartition:
        if require_stable and self.is_pending(partition):
            return fetched_nothing(partition.partition, pb.UNSTABLE_OFFSET_COMMIT)
        stored = self.committed.get(partition)
        if stored is None:
            return fetched_nothing(partition.partition, pb.NONE)
        found = stored.offset
        if topic_id and found.topic_id and topic_id != found.topic_id:
            # The topic was deleted and recreated: the offset of the old topic is invalid in the new one.
            return fetched_nothing(partition.partition, pb.NONE)
        return pb.FetchedPartition(
            index=partition.partition,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
            metadata=found.metadata,
        )


def to_message(producer_id: int, pending: Pending) -> OffsetPending:
    """Return the record of a pending offset."""
    return OffsetPending(
        offset=pending.offset, producer_id=producer_id, producer_epoch=pending.producer_epoch
    )


def fetched_nothing(index: int, error: pb.ErrorCode.ValueType) -> pb.FetchedPartition:
    """Return the response for a partition without a committed offset, or with an error."""
    return pb.FetchedPartition(
        index=index, offset=NOTHING_COMMITTED, leader_epoch=UNKNOWN_EPOCH, error_code=error
    )


def removed(group_id: str, partition: TopicPartition) -> Record:
    """Return the record that deletes an offset."""
    return Record(
        offset_removed=OffsetRemoved(group_id=group_id, topic=partition.topic, partition=partition.partition)
    )
