"""
All topics of the log, and where each partition's records lie.

Changed by `replay` only. The number of a partition's log is never given twice, so that rows of a deleted topic which
are still in the file are never taken for those of a later one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.partition import Partition, Retention
from rota_coordinator.core.log.sequences import Sequences
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent, StartMoved, TopicCreated, TopicDeleted


@dataclass(slots=True)
class Topic:
    """A topic and its partitions."""

    name: str
    topic_id: bytes
    # The principal whose quota it counts for; empty when it was created before that was written down.
    created_by: str = ""
    partitions: list[Partition] = field(default_factory=list)

    @property
    def retention(self) -> Retention:
        """The same for all partitions."""
        return self.partitions[0].retention

    def made(self, log_ids: Iterable[int] = ()) -> TopicCreated:
        """The event that says what the topic is, with these logs as further partitions."""
        return TopicCreated(
            name=self.name,
            topic_id=self.topic_id,
            log_ids=[*(partition.log_id for partition in self.partitions), *log_ids],
            retention_ms=self.retention.ms,
            retention_bytes=self.retention.bytes,
            created_by=self.created_by,
        )


@dataclass(slots=True)
class Topics:
    """The topics, by name."""

    config: LogConfig
    by_name: dict[str, Topic] = field(default_factory=dict)
    _by_log_id: dict[int, Partition] = field(default_factory=dict)
    # The highest number that a log ever had.
    last_log_id: int = 0

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_log_id.values())

    def __len__(self) -> int:
        """The number of partitions of all topics."""
        return len(self._by_log_id)

    def get(self, name: str) -> Topic | None:
        """The topic of that name."""
        return self.by_name.get(name)

    def log(self, log_id: int) -> Partition | None:
        """The partition whose records lie there; None when its topic is gone."""
        return self._by_log_id.get(log_id)

    def find(self, name: str, index: int, topic_id: bytes) -> Partition | pb.ErrorCode.ValueType:
        """The partition, or why there is none. An empty id is not checked."""
        topic = self.by_name.get(name)
        if topic_id and (topic is None or topic.topic_id != topic_id):
            return pb.UNKNOWN_TOPIC_ID
        if topic is None or not 0 <= index < len(topic.partitions):
            return pb.UNKNOWN_TOPIC_OR_PARTITION
        return topic.partitions[index]

    def next_log_ids(self, count: int) -> range:
        """Numbers that no log has had."""
        return range(self.last_log_id + 1, self.last_log_id + 1 + count)

    def made(self, event: TopicCreated) -> None:
        """There is such a topic, with so many partitions, from now on."""
        topic = self.by_name.get(event.name)
        if topic is None:
            topic = self.by_name[event.name] = Topic(event.name, event.topic_id, event.created_by)
        retention = Retention(event.retention_ms, event.retention_bytes)
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
        """Events that say the same as all that were replayed."""
        # Of topics that are gone only this is left.
        yield LogEvent(topic_deleted=TopicDeleted(last_log_id=self.last_log_id))
        for topic in self.by_name.values():
            yield LogEvent(topic_created=topic.made())
        for partition in self:
            if partition.start:
                moved = StartMoved(log_id=partition.log_id, offset=partition.start)
                yield LogEvent(start_moved=moved)
