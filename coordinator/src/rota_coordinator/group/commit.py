"""Whether a commit may be, partition by partition, and the records that it becomes."""

from rota_coordinator.group.answers import copied
from rota_coordinator.group.consumer_protocol import TopicPartition
from rota_coordinator.group.effects import Effects
from rota_coordinator.group.members import Member, instance_of
from rota_coordinator.group.offsets import Offsets
from rota_coordinator.group.state import Group, State
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import OffsetCommitted, OffsetPending, Record

Request = pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest


def refusal(group: Group, request: Request, now_ms: int) -> pb.ErrorCode.ValueType:
    """Why the whole request is refused; NONE if it is not. A commit also keeps its member's session alive."""
    transactional = isinstance(request, pb.TxnCommitOffsetsRequest)
    instance_id = instance_of(request)
    if request.generation_id < 0 and group.state is State.EMPTY:
        return pb.NONE
    if request.generation_id < 0 and not request.member_id and instance_id is None:
        return pb.NONE if transactional else pb.UNKNOWN_MEMBER_ID
    match group.members.identify(request.member_id, instance_id):
        case Member() as member:
            pass
        case error:
            return error
    if request.generation_id != group.generation:
        return pb.ILLEGAL_GENERATION
    if transactional:
        return pb.NONE
    if group.state is State.COMPLETING:
        return pb.REBALANCE_IN_PROGRESS
    group.touch(member, now_ms)
    return pb.NONE


def partition_error(
    group: Group, request: Request, partition: TopicPartition, metadata: str
) -> pb.ErrorCode.ValueType:
    """Why one partition is refused."""
    if len(metadata.encode("utf-16-le")) // 2 > group.config.offset_metadata_length_max:
        return pb.OFFSET_METADATA_TOO_LARGE
    owner = group.owners.get(partition)
    # Kafka looks at member and generation only; a late verdict for a partition that moved would pass there.
    if request.generation_id >= 0 and owner is not None and owner != request.member_id:
        return pb.ILLEGAL_GENERATION
    return pb.NONE


def commit(
    group: Group, offsets: Offsets, effects: Effects, request: Request, now_ms: int
) -> tuple[pb.ErrorCode.ValueType, list[pb.TopicErrors]]:
    """Decide a commit: the error of the request, and of each partition."""
    error = refusal(group, request, now_ms)
    if error:
        return error, copied(request, error)

    def decide(topic: pb.TopicOffsets, partition: pb.PartitionOffset) -> pb.PartitionError:
        where = TopicPartition(topic.name, partition.index)
        refused = partition_error(group, request, where, partition.metadata)
        if not refused:
            offsets.write(to_record(request, topic, partition, now_ms), effects)
        return pb.PartitionError(index=partition.index, error_code=refused)

    return pb.NONE, [
        pb.TopicErrors(
            name=topic.name, partitions=[decide(topic, partition) for partition in topic.partitions]
        )
        for topic in request.topics
    ]


def to_record(request: Request, topic: pb.TopicOffsets, partition: pb.PartitionOffset, now_ms: int) -> Record:
    """What is written for one partition."""
    offset = OffsetCommitted(
        group_id=request.group_id,
        topic=topic.name,
        partition=partition.index,
        topic_id=topic.topic_id,
        offset=partition.offset,
        leader_epoch=partition.leader_epoch,
        metadata=partition.metadata,
        committed_at_ms=now_ms,
    )
    if isinstance(request, pb.TxnCommitOffsetsRequest):
        held = OffsetPending(
            offset=offset, producer_id=request.producer_id, producer_epoch=request.producer_epoch
        )
        return Record(offset_pending=held)
    return Record(offset_committed=offset)
