"""
The entry point of the log core: requests and time come in, answers and Effects go out.

Called by the shell (`topic_log`). Loading goes through `replay` for every event, then `replay_batch` for every header,
each log's in the order of offsets, then `loaded`.
"""

from collections.abc import Callable, Iterable, Sequence

from rota_coordinator.core.instants import WallClock, WallMs
from rota_coordinator.core.log import administration, appends, transactions
from rota_coordinator.core.log.administration import Creator
from rota_coordinator.core.log.batch import Header, Row
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.state import State
from rota_coordinator.core.log.topics import Topic
from rota_coordinator.core.quotas import Reserve, reserve_unlimited
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import GroupAdded, LogEvent
from rota_proto.log.v1 import log_pb2 as pb

# Of topics that are charged to no principal.
NO_CREATOR = Creator("", reserve_unlimited)


class Log:
    """Topics, records, producers and transactions of one file."""

    def __init__(self, config: LogConfig, wall: WallClock | None = None) -> None:
        """`wall` is the clock of the times that come with requests."""
        self._state = State(config, wall or WallClock())

    def replay(self, event: LogEvent) -> None:
        """Take over an event from the store, in the order of writing."""
        self._state.replay(event)

    def replay_batch(self, log_id: int, header: Header) -> None:
        """Take over a batch from the store, in the order of its log's offsets."""
        self._state.replay_batch(log_id, header)

    def loaded(self, now_ms: WallMs) -> None:
        """Finish loading, after all events and all headers were replayed."""
        self._state.loaded(now_ms)

    def snapshot(self) -> list[LogEvent]:
        """Events that say the same as all that were replayed: the log of events, compacted."""
        return list(self._state.snapshot())

    def written(self, rows: Sequence[Row]) -> None:
        """Make rows visible to readers; called once they are in the file."""
        self._state.written(rows)

    def partition(
        self, topic: str, index: int, topic_id: bytes = b""
    ) -> Partition | codes.ErrorCode.ValueType:
        """The partition, or why there is none. An empty id is not checked."""
        return self._state.topics.find(topic, index, topic_id)

    def partitions(self) -> Iterable[Partition]:
        """All partitions of all topics."""
        return self._state.topics

    def topic_id(self, name: str) -> bytes | None:
        """The id of the topic that has this name now."""
        topic = self._state.topics.get(name)
        return None if topic is None else topic.topic_id

    def topics(self) -> Iterable[Topic]:
        """All topics."""
        return self._state.topics.by_name.values()

    def topic(self, name: str) -> Topic | None:
        """The topic that has this name now."""
        return self._state.topics.get(name)

    def create_topics(
        self,
        request: pb.CreateTopicsRequest,
        new_uuid: Callable[[], bytes],
        effects: Effects,
        creator: Creator = NO_CREATOR,
    ) -> pb.CreateTopicsResponse:
        """CreateTopics; `new_uuid` gives an id that no topic has had."""
        return administration.create_topics(self._state, request, new_uuid, creator, effects)

    def delete_topics(self, request: pb.DeleteTopicsRequest, effects: Effects) -> pb.DeleteTopicsResponse:
        """DeleteTopics."""
        return administration.delete_topics(self._state, request, effects)

    def create_partitions(
        self, request: pb.CreatePartitionsRequest, effects: Effects, reserve: Reserve = reserve_unlimited
    ) -> pb.CreatePartitionsResponse:
        """CreatePartitions, as far as the topics' creators may have more."""
        return administration.create_partitions(self._state, request, reserve, effects)

    def describe_topics(self, request: pb.DescribeTopicsRequest) -> pb.DescribeTopicsResponse:
        """DescribeTopics: changes nothing."""
        return administration.describe_topics(self._state, request)

    def delete_records(self, request: pb.DeleteRecordsRequest, effects: Effects) -> pb.DeleteRecordsResponse:
        """DeleteRecords, by an administrator or for retention. The rows before a new start may be dropped."""
        return administration.delete_records(self._state, request, effects)

    def append(
        self,
        partition: pb.ProduceRequest.Partition,
        transactional_id: str,
        now_ms: WallMs,
        effects: Effects,
        reserve: Reserve = reserve_unlimited,
    ) -> pb.ProduceResponse.Partition:
        """One partition of a Produce: all its batches, or none."""
        return appends.append(self._state, partition, transactional_id, now_ms, effects, reserve)

    def init_producer(
        self, request: pb.InitProducerRequest, now_ms: WallMs, effects: Effects
    ) -> pb.InitProducerResponse:
        """InitProducer."""
        return transactions.init_producer(self._state, request, now_ms, effects)

    def add_offsets(
        self, request: pb.AddOffsetsToTransactionRequest, now_ms: WallMs, effects: Effects
    ) -> pb.AddOffsetsToTransactionResponse:
        """AddOffsetsToTransaction."""
        return transactions.add_offsets(self._state, request, now_ms, effects)

    def txn_offsets_error(self, request: codes.TxnCommitOffsetsRequest) -> codes.ErrorCode.ValueType:
        """Why these offsets cannot be part of the producer's transaction; NONE if they can."""
        return transactions.txn_offsets_error(self._state, request)

    def memberships(self, transactional_id: str) -> list[GroupAdded]:
        """The groups of the open transaction, to be asked before its end."""
        known = self._state.producers.transactional.get(transactional_id)
        return [] if known is None or known.open is None else list(known.open.groups.values())

    def end(
        self,
        request: pb.EndTransactionRequest,
        refused: codes.ErrorCode.ValueType,
        now_ms: WallMs,
        effects: Effects,
    ) -> pb.EndTransactionResponse:
        """EndTransaction. With `refused`, what one of its groups said, a commit becomes an abort."""
        return transactions.end(self._state, request, refused, now_ms, effects)

    def expire(self, now_ms: WallMs, effects: Effects) -> None:
        """Abort and forget what is due."""
        transactions.expire(self._state, now_ms, effects)

    def wake_at_ms(self) -> int | None:
        """When to call `expire`; asked again after every event."""
        return transactions.wake_at_ms(self._state)
