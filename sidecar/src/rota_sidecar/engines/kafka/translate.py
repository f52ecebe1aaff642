"""
Translates requests of Rota's protocol into Kafka's, and Kafka's responses into Rota's. Called by `coordination.py`; pure.

Kafka's null string is Rota's empty string, except for a group instance id, which is unset on both sides or set on both.
"""

from collections.abc import Iterable
from typing import cast

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import group

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.messages import Request, Response

# Errors of the member or the coordinator: in a commit they apply to all partitions.
ABOUT_THE_REQUEST = frozenset(
    {
        pb.COORDINATOR_LOAD_IN_PROGRESS,
        pb.COORDINATOR_NOT_AVAILABLE,
        pb.NOT_COORDINATOR,
        pb.ILLEGAL_GENERATION,
        pb.UNKNOWN_MEMBER_ID,
        pb.REBALANCE_IN_PROGRESS,
        pb.FENCED_INSTANCE_ID,
        pb.INVALID_GROUP_ID,
        pb.GROUP_ID_NOT_FOUND,
        pb.GROUP_AUTHORIZATION_FAILED,
    }
)
KNOWN_ERRORS = frozenset(pb.ErrorCode.values())

# Messages with the instance id of a static member.
_Identified = (
    pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.LeavingMember
    | pb.CommitOffsetsRequest
)


def error_of(code: int) -> pb.ErrorCode.ValueType:
    """Return the error code; one that Rota's protocol does not have is UNKNOWN_SERVER_ERROR."""
    return cast("pb.ErrorCode.ValueType", code) if code in KNOWN_ERRORS else pb.UNKNOWN_SERVER_ERROR


def to_kafka(request: Request) -> ApiMessage:
    """Translate a request into Kafka's protocol."""
    match request:
        case pb.JoinGroupRequest():
            return _join(request)
        case pb.SyncGroupRequest():
            return group.SyncGroupRequest(
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=_instance(request),
                protocol_type=request.protocol_type or None,
                protocol_name=request.protocol_name or None,
                assignments=[(each.member_id, each.assignment) for each in request.assignments],
            )
        case pb.HeartbeatRequest():
            return group.HeartbeatRequest(
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=_instance(request),
            )
        case pb.LeaveGroupRequest():
            leaving = [(each.member_id, _instance(each), each.reason or None) for each in request.members]
            return group.LeaveGroupRequest(group_id=request.group_id, members=leaving)
        case pb.CommitOffsetsRequest():
            return _commit(request)
        case pb.FetchOffsetsRequest():
            return _fetch(request)


def from_kafka(answer: ApiMessage) -> Response:
    """Translate a response of Kafka. Raises TypeError for one that answers no request of a member."""
    match answer:
        case group.JoinGroupResponse():
            return _joined(answer)
        case group.SyncGroupResponse():
            return pb.SyncGroupResponse(
                error_code=error_of(answer.error_code),
                protocol_type=answer.protocol_type or "",
                protocol_name=answer.protocol_name or "",
                assignment=bytes(answer.assignment),
            )
        case group.HeartbeatResponse():
            return pb.HeartbeatResponse(error_code=error_of(answer.error_code))
        case group.LeaveGroupResponse():
            return _left(answer)
        case group.OffsetCommitResponse():
            return _committed(answer)
        case group.OffsetFetchResponse():
            return _fetched(answer)
        case _:
            raise TypeError(f"unexpected response {type(answer).__name__} to a member")


def _instance(message: _Identified) -> str | None:
    return message.group_instance_id if message.HasField("group_instance_id") else None


def _join(request: pb.JoinGroupRequest) -> ApiMessage:
    return group.JoinGroupRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member_id,
        group_instance_id=_instance(request),
        protocol_type=request.protocol_type,
        protocols=[(each.name, each.metadata) for each in request.protocols],
        reason=request.reason or None,
    )


def _commit(request: pb.CommitOffsetsRequest) -> ApiMessage:
    topics = [
        (
            topic.name,
            [
                (each.index, each.offset, each.leader_epoch, each.metadata or None)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return group.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=_instance(request),
        topics=topics,
    )


def _fetch(request: pb.FetchOffsetsRequest) -> ApiMessage:
    topics = None if request.all else [(topic.name, list(topic.partitions)) for topic in request.topics]
    return group.OffsetFetchRequest(
        groups=[group.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)],
        require_stable=request.require_stable,
    )


def _joined(answer: ApiMessage) -> pb.JoinGroupResponse:
    members = [
        pb.Member(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            metadata=bytes(each.metadata),
        )
        for each in answer.members
    ]
    return pb.JoinGroupResponse(
        error_code=error_of(answer.error_code),
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type or "",
        protocol_name=answer.protocol_name or "",
        leader=answer.leader,
        member_id=answer.member_id,
        skip_assignment=answer.skip_assignment,
        members=members,
    )


def _left(answer: ApiMessage) -> pb.LeaveGroupResponse:
    members = [
        pb.LeftMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=error_of(each.error_code),
        )
        for each in answer.members
    ]
    return pb.LeaveGroupResponse(error_code=error_of(answer.error_code), members=members)


def _committed(answer: ApiMessage) -> pb.CommitOffsetsResponse:
    """Set the error of the whole commit, which Kafka repeats in each partition instead."""
    topics = [
        pb.TopicErrors(
            name=topic.name,
            partitions=[
                pb.PartitionError(index=each.partition_index, error_code=error_of(each.error_code))
                for each in topic.partitions
            ],
        )
        for topic in answer.topics
    ]
    codes: Iterable[pb.ErrorCode.ValueType] = (
        each.error_code for topic in topics for each in topic.partitions
    )
    whole = next((code for code in codes if code in ABOUT_THE_REQUEST), pb.NONE)
    return pb.CommitOffsetsResponse(error_code=whole, topics=topics)


def _fetched(answer: ApiMessage) -> pb.FetchOffsetsResponse:
    (found,) = answer.groups
    topics = [
        pb.FetchedTopic(
            name=topic.name,
            partitions=[
                pb.FetchedPartition(
                    index=each.partition_index,
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata or "",
                    error_code=error_of(each.error_code),
                )
                for each in topic.partitions
            ],
        )
        for topic in found.topics
    ]
    return pb.FetchOffsetsResponse(error_code=error_of(found.error_code), topics=topics)
