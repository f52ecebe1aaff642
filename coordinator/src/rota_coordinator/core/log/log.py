"""
The entry point of the log core: requests and time come in, responses and Effects go out.

Called by the shell (`topic_log`). To load, the shell calls `replay` for every event, then `replay_batch` for every
header, per log in offset order, then `loaded`.
"""

from collections.abc import Callable, Iterable, Sequence

from rota_coordinator.core.instants import WallClock, WallMs
from rota_coordinator.core.log import administration, appends, transactions
from rota_coordinator.core.log.administration import Creator
from rota_coordinator.core.log.batch import Header, Row
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.partition import Cleaned, Partition
from rota_coordinator.core.log.state import State
from rota_coordinator.core.log.topics import Topic, cleaned_event
from rota_coordinator.core.quotas import Reserve, reserve_unlimited
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import GroupAdded, LogEvent
from rota_proto.log.v1 import log_pb2 as pb

# The creator of topics that are charged to no principal.
NO_CREATOR = Creator("", reserve_unlimited)


class Log:
    """Topics, partitions, producers and transactions of one store. Invariant: replay alone changes durable state."""

    def __init__(self, config: LogConfig, wall: WallClock | None = None) -> None:
        """`wall` converts the wall-clock times of requests to the monotonic clock of timeouts."""
        self._state = State(config, wall or WallClock())

    def replay(self, event: LogEvent) -> None:
        """Apply an event from the store; called in write order."""
        self._state.replay(event)

    def replay_batch(self, log_id: int, header: Header) -> None:
        """Apply a batch header from the store; called per log in offset order."""
        self._state.replay_batch(log_id, header)

    def loaded(self, now_ms: WallMs) -> None:
        """Finish loading, after all events and all headers were replayed."""
        self._state.loaded(now_ms)

    def snapshot(self) -> list[LogEvent]:
        """Return the compacted event log: the events that restore the present state."""
        return list(self._state.snapshot())

    def written(self, rows: Sequence[Row]) -> None:
        """Make rows visible to consumers; called once the rows are stored."""
        self._state.written(rows)

    def rewritten(self, log_id: int, headers: Iterable[Header]) -> None:
        """Forget batches that compaction has removed or rewritten; called once that is stored."""
        self._state.rewritten(log_id, headers)

    def cleaned(self, partition: Partition, cleaned: Cleaned, effects: Effects) -> None:
        """End a pass of compaction; called once all its changes are stored."""
        self._state.write(LogEvent(log_cleaned=cleaned_event(partition.log_id, cleaned)), effects)

    def partition(
        self, topic: str, index: int, topic_id: bytes = b""
    ) -> Partition | codes.ErrorCode.ValueType:
        """Return the partition, or the error when it does not exist. An empty topic id is not checked."""
        return self._state.topics.find(topic, index, topic_id)

    def partitions(self) -> Iterable[Partition]:
        """Return all partitions of all topics."""
        return self._state.topics

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the topic with this name; None: no such topic."""
        topic = self._state.topics.get(name)
        return None if topic is None else topic.topic_id

    def topics(self) -> Iterable[Topic]:
        """Return all topics."""
        return self._state.topics.by_name.values()

    def topic(self, name: str) -> Topic | None:
        """Return the topic with this name; None: no such topic."""
        return self._state.topics.get(name)

    def create_topics(
        self,
        request: pb.CreateTopicsRequest,
        new_uuid: Callable[[], bytes],
        effects: Effects,
        creator: Creator = NO_CREATOR,
    ) -> pb.CreateTopicsResponse:
        """Handle CreateTopics; `new_uuid` returns an id that no topic has had."""
        return administration.create_topics(self._state, request, new_uuid, creator, effects)

    def delete_topics(self, request: pb.DeleteTopicsRequest, effects: Effects) -> pb.DeleteTopicsResponse:
        """Handle DeleteTopics."""
        return administration.delete_topics(self._state, request, effects)

    def create_partitions(
        self, request: pb.CreatePartitionsRequest, effects: Effects, reserve: Reserve = reserve_unlimited
    ) -> pb.CreatePartitionsResponse:
        """Handle CreatePartitions; growth beyond the quota of a topic's creator is rejected."""
        return administration.create_partitions(self._state, request, reserve, effects)

    def alter_topics(self, request: pb.AlterTopicsRequest, effects: Effects) -> pb.AlterTopicsResponse:
        """Handle AlterTopics: the next pass of retention applies the change."""
        return administration.alter_topics(self._state, request, effects)

    def describe_topics(self, request: pb.DescribeTopicsRequest) -> pb.DescribeTopicsResponse:
        """Handle DescribeTopics; changes nothing."""
        return administration.describe_topics(self._state, request)

    def delete_records(self, request: pb.DeleteRecordsRequest, effects: Effects) -> pb.DeleteRecordsResponse:
        """
        Handle DeleteRecords of an administrator or of retention; the caller may then delete rows before the new start.
        """
        return administration.delete_records(self._state, request, effects)

    def append(
        self,
        partition: pb.ProduceRequest.Partition,
        transactional_id: str,
        now_ms: WallMs,
        effects: Effects,
        reserve: Reserve = reserve_unlimited,
    ) -> pb.ProduceResponse.Partition:
        """Append one partition of a Produce: all its batches, or none."""
        return appends.append(self._state, partition, transactional_id, now_ms, effects, reserve)

    def init_producer(
        self, request: pb.InitProducerRequest, now_ms: WallMs, effects: Effects
    ) -> pb.InitProducerResponse:
        """Handle InitProducer."""
        return transactions.init_producer(self._state, request, now_ms, effects)

    def add_offsets(
        self, request: pb.AddOffsetsToTransactionRequest, now_ms: WallMs, effects: Effects
    ) -> pb.AddOffsetsToTransactionResponse:
        """Handle AddOffsetsToTransaction."""
        return transactions.add_offsets(self._state, request, now_ms, effects)

    def txn_offsets_error(self, request: codes.TxnCommitOffsetsRequest) -> codes.ErrorCode.ValueType:
        """Return the error of offsets that cannot be part of the producer's transaction; NONE if they can."""
        return transactions.txn_offsets_error(self._state, request)

    def memberships(self, transactional_id: str) -> list[GroupAdded]:
        """Return the groups of the open transaction; the shell checks their members before the transaction commits."""
        known = self._state.producers.transactional.get(transactional_id)
        return [] if known is None or known.open is None else list(known.open.groups.values())

    def end(
        self,
        request: pb.EndTransactionRequest,
        refused: codes.ErrorCode.ValueType,
        now_ms: WallMs,
        effects: Effects,
    ) -> pb.EndTransactionResponse:
        """Handle EndTransaction. `refused` is the error of one of its groups; it turns a commit into an abort."""
        return transactions.end(self._state, request, refused, now_ms, effects)

    def expire(self, now_ms: WallMs, effects: Effects) -> None:
        """Abort transactions beyond their timeout, and remove transactional ids beyond their expiration."""
        transactions.expire(self._state, now_ms, effects)

    def wake_at_ms(self) -> int | None:
        """Return the time of the next `expire`; it may change with every event. None: nothing expires."""
        return transactions.wake_at_ms(self._state)
