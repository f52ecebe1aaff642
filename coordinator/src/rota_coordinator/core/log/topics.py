"""
Topics of the log, and the log id of each partition.

Changed by `replay` only. A log id is never assigned twice, so that stored rows of a deleted topic never appear in a
later topic.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rota_coordinator.core.log.config import DELETE_RETENTION_MS, LogConfig
from rota_coordinator.core.log.partition import Cleaned, Partition, Retention
from rota_coordinator.core.log.sequences import Sequences
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.log_events_pb2 import (
    LogCleaned,
    LogEvent,
    StartMoved,
    TopicCreated,
    TopicDeleted,
)
from rota_proto.log.v1 import log_pb2


@dataclass(slots=True)
class Topic:
    """A topic and its partitions."""

    name: str
    topic_id: bytes
    # The principal whose quota is charged; empty: created by a version without quotas.
    created_by: str = ""
    partitions: list[Partition] = field(default_factory=list)

    @property
    def retention(self) -> Retention:
        """The retention of all partitions of the topic."""
        return self.partitions[0].retention

    def made(self, log_ids: Iterable[int] = (), retention: Retention | None = None) -> TopicCreated:
        """Return the event that describes the topic, with additional partitions of these log ids or another retention."""
        retention = self.retention if retention is None else retention
        return TopicCreated(
            name=self.name,
            topic_id=self.topic_id,
            log_ids=[*(partition.log_id for partition in self.partitions), *log_ids],
            retention_ms=retention.ms,
            retention_bytes=retention.bytes,
            created_by=self.created_by,
            cleanup_policy=retention.policy,
            delete_retention_ms=0
            if retention.delete_retention_ms == DELETE_RETENTION_MS
            else retention.delete_retention_ms,
        )


@dataclass(slots=True)
class Topics:
    """The topics by name. Invariant: each partition is indexed by its log id, and no log id exceeds `last_log_id`."""

    config: LogConfig
    by_name: dict[str, Topic] = field(default_factory=dict)
    _by_log_id: dict[int, Partition] = field(default_factory=dict)
    # The highest log id that was ever assigned.
    last_log_id: int = 0

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_log_id.values())

    def __len__(self) -> int:
        """Return the number of partitions of all topics."""
        return len(self._by_log_id)

    def get(self, name: str) -> Topic | None:
        """Return the topic with this name; None: no such topic."""
        return self.by_name.get(name)

    def log(self, log_id: int) -> Partition | None:
        """Return the partition of a log id; None: its topic was deleted."""
        return self._by_log_id.get(log_id)

    def find(self, name: str, index: int, topic_id: bytes) -> Partition | pb.ErrorCode.ValueType:
        """Return the partition, or the error when it does not exist. An empty topic id is not checked."""
        topic = self.by_name.get(name)
        if topic_id and (topic is None or topic.topic_id != topic_id):
            return pb.UNKNOWN_TOPIC_ID
        if topic is None or not 0 <= index < len(topic.partitions):
            return pb.UNKNOWN_TOPIC_OR_PARTITION
        return topic.partitions[index]

    def next_log_ids(self, count: int) -> range:
        """Return log ids that were never assigned."""
        return range(self.last_log_id + 1, self.last_log_id + 1 + count)

    def made(self, event: TopicCreated) -> None:
        """Apply a TopicCreated: add the topic, or change the retention and add the partitions of an existing one."""
        topic = self.by_name.get(event.name)
        if topic is None:
            topic = self.by_name[event.name] = Topic(event.name, event.topic_id, event.created_by)
        retention = Retention(
            event.retention_ms,
            event.retention_bytes,
            log_pb2.CleanupPolicy.ValueType(event.cleanup_policy),
            event.delete_retention_ms or DELETE_RETENTION_MS,
        )
        for partition in topic.partitions:
            partition.retention = retention
        for log_id in event.log_ids[len(topic.partitions) :]:
            partition = Partition(
                log_id=log_id,
                topic=topic.name,
                index=len(topic.partitions),
                topic_id=topic.topic_id,
                retention=retention,
                sequences=Sequences(self.config.partition_producers_max),
            )
            topic.partitions.append(partition)
            self._by_log_id[log_id] = partition
            self.last_log_id = max(self.last_log_id, log_id)

    def gone(self, event: TopicDeleted) -> list[Partition]:
        """Remove the topic, and return its partitions."""
        self.last_log_id = max(self.last_log_id, event.last_log_id)
        topic = self.by_name.pop(event.name, None)
        if topic is None:
            return []
        for partition in topic.partitions:
            del self._by_log_id[partition.log_id]
        return topic.partitions

    def snapshot(self) -> Iterator[LogEvent]:
        """Yield the events that restore the present state."""
        # Deleted topics leave only the highest log id behind.
        yield LogEvent(topic_deleted=TopicDeleted(last_log_id=self.last_log_id))
        for topic in self.by_name.values():
            yield LogEvent(topic_created=topic.made())
        for partition in self:
            if partition.start:
                moved = StartMoved(log_id=partition.log_id, offset=partition.start)
                yield LogEvent(start_moved=moved)
            if partition.cleaned != Cleaned():
                yield LogEvent(log_cleaned=cleaned_event(partition.log_id, partition.cleaned))


def cleaned_event(log_id: int, cleaned: Cleaned) -> LogCleaned:
    """Return the event of a pass of compaction."""
    return LogCleaned(
        log_id=log_id,
        clean_until=cleaned.until,
        indexed_until=cleaned.indexed_until,
        tombstones_until=cleaned.tombstones_until,
        tombstones_ms=cleaned.tombstones_ms,
    )


def replay_cleaned(partition: Partition, event: LogCleaned) -> None:
    """Apply the end of a pass of compaction."""
    partition.cleaned = Cleaned(
        event.clean_until, event.indexed_until, event.tombstones_until, event.tombstones_ms
    )
