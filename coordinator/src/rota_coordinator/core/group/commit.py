"""Validate a commit, first the request and then each partition, and turn it into records. Called by `groups`."""

from rota_coordinator.core.group.answers import copied
from rota_coordinator.core.group.consumer_protocol import TopicPartition
from rota_coordinator.core.group.effects import Effects
from rota_coordinator.core.group.members import Member, instance_of
from rota_coordinator.core.group.offsets import Offsets
from rota_coordinator.core.group.state import Group, State
from rota_coordinator.core.instants import MonotonicMs, WallMs
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record

Request = pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest


def refusal(group: Group, request: Request, now_ms: MonotonicMs) -> pb.ErrorCode.ValueType:
    """
    Return the error that rejects the whole request; NONE if none. A valid commit also extends its member's session.
    """
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


def room_error(offsets: Offsets, partition: TopicPartition) -> pb.ErrorCode.ValueType:
    """
    Return the error of a partition whose offset exceeds the group's limit; NONE if it fits. Every request checks this.
    """
    return pb.NONE if offsets.has_room_for(partition) else pb.INVALID_COMMIT_OFFSET_SIZE


def partition_error(
    group: Group, request: Request, partition: TopicPartition, metadata: str
) -> pb.ErrorCode.ValueType:
    """Return the error of one partition; NONE if it may be committed."""
    if metadata and is_longer(metadata, group.config.offset_metadata_length_max):
        return pb.OFFSET_METADATA_TOO_LARGE
    if request.generation_id < 0:
        return pb.NONE
    owner = group.owner_of(partition)
    # Kafka checks member and generation only, so it accepts a late commit for a partition that has moved.
    return pb.NONE if owner is None or owner == request.member_id else pb.ILLEGAL_GENERATION


def is_longer(text: str, most: int) -> bool:
    """Return whether a text has more than `most` UTF-16 code units; they are counted only near the limit."""
    return 2 * len(text) > most and len(text.encode("utf-16-le")) // 2 > most


def commit(
    group: Group, offsets: Offsets, effects: Effects, request: Request, now_ms: MonotonicMs
) -> tuple[pb.ErrorCode.ValueType, list[pb.TopicErrors]]:
    """Decide a commit, and answer with an error for each partition."""
    error = refusal(group, request, now_ms)
    if error:
        return error, copied(request, error)
    outcomes = []
    at_ms = group.wall.at(now_ms)
    is_transactional = isinstance(request, pb.TxnCommitOffsetsRequest)
    for topic in request.topics:
        name = topic.name
        outcome = pb.TopicErrors(name=name)
        add_result = outcome.partitions.add
        template = record_of_topic(request, topic, at_ms)
        for partition in topic.partitions:
            index = partition.index
            where = TopicPartition(name, index)
            refused = partition_error(group, request, where, partition.metadata)
            if not refused and where not in offsets.committed:
                refused = room_error(offsets, where)
            result = add_result()
            result.index = index
            if refused:
                result.error_code = refused
            elif is_transactional:
                offsets.write(to_record(template, partition), effects)
            else:
                offsets.write_commit(where, to_record(template, partition), effects)
        outcomes.append(outcome)
    return pb.NONE, outcomes


def record_of_topic(request: Request, topic: pb.TopicOffsets, at_ms: WallMs) -> Record:
    """Return a record with what the records of all partitions of a topic have in common."""
    record = Record()
    if isinstance(request, pb.TxnCommitOffsetsRequest):
        held = record.offset_pending
        held.producer_id = request.producer_id
        held.producer_epoch = request.producer_epoch
        offset = held.offset
    else:
        offset = record.offset_committed
    offset.group_id = request.group_id
    offset.topic = topic.name
    offset.topic_id = topic.topic_id
    offset.committed_at_ms = at_ms
    return record


def to_record(template: Record, partition: pb.PartitionOffset) -> Record:
    """Return the record of one partition; filled in place, because a commit consists of many."""
    record = Record()
    record.CopyFrom(template)
    offset = record.offset_pending.offset if record.HasField("offset_pending") else record.offset_committed
    offset.partition = partition.index
    offset.offset = partition.offset
    offset.leader_epoch = partition.leader_epoch
    metadata = partition.metadata
    if metadata:
        offset.metadata = metadata
    return record
