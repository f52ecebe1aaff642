"""
Validation of requests to groups: lengths, counts and number ranges. Independent of the caller.

Called by `validation_interceptor` for every call and by `sessions` for every frame, before the request reaches a group.
Kafka limits strings by their encoding only (32,767 bytes) and does not check number ranges.
"""

from collections.abc import Collection, Iterable, Sized

from google.protobuf.message import Message

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# Maximum characters of an id, name or reason. The core limits group ids and offset metadata separately.
TEXT_LENGTH_MAX = 1_024
# Maximum partitions of one request. Deciding this many blocks the event loop for some tens of milliseconds.
PARTITIONS_MAX = 10_000
GROUPS_MAX = 1_000
MEMBERS_MAX = 10_000
PROTOCOLS_MAX = 100
TOPIC_ID_LENGTHS = (0, 16)

# Requests of a member in a generation.
Bound = pb.HeartbeatRequest | pb.SyncGroupRequest | pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest


def validate(request: Message) -> str:
    """Return the error message for an invalid request; empty when it is valid."""
    match request:
        case pb.HeartbeatRequest():
            return validate_identity(request)
        case pb.CommitOffsetsRequest():
            return validate_identity(request) or validate_offsets(request.topics)
        case pb.TxnCommitOffsetsRequest():
            return (
                validate_identity(request) or validate_producer(request) or validate_offsets(request.topics)
            )
        case pb.FetchOffsetsRequest() | admin.DeleteOffsetsRequest():
            return validate_length("group_id", request.group_id) or validate_partitions(request.topics)
        case pb.JoinGroupRequest() | pb.SyncGroupRequest() | pb.LeaveGroupRequest():
            return validate_membership(request)
        case admin.AlterOffsetsRequest():
            return validate_length("group_id", request.group_id) or validate_offsets(request.topics)
        case _:
            return validate_groups(request)


def validate_membership(request: pb.JoinGroupRequest | pb.SyncGroupRequest | pb.LeaveGroupRequest) -> str:
    """Validate JoinGroup, SyncGroup and LeaveGroup."""
    match request:
        case pb.JoinGroupRequest():
            return validate_join(request)
        case pb.SyncGroupRequest():
            return validate_identity(request) or validate_sync(request)
        case pb.LeaveGroupRequest():
            return validate_length("group_id", request.group_id) or validate_leave(request)


def validate_groups(request: Message) -> str:
    """Validate requests that name groups."""
    match request:
        case pb.FindCoordinatorRequest() | admin.DescribeGroupsRequest() | admin.DeleteGroupsRequest():
            ids = request.group_ids
            return validate_count("group_ids", ids, GROUPS_MAX) or first_error(
                validate_length("a group id", each) for each in ids
            )
        case admin.WatchGroupRequest():
            return validate_length("group_id", request.group_id)
        case admin.ListGroupsRequest():
            known = admin.GroupState.values()
            return first_error(
                f"unknown group state {state}" for state in request.states if state not in known
            )
        case _:
            return ""


def validate_identity(request: Bound) -> str:
    """Validate the group id, the member ids and the generation."""
    if request.generation_id < -1:
        return f"generation_id must be at least -1 (no generation), not {request.generation_id}"
    return (
        validate_length("group_id", request.group_id)
        or validate_length("member_id", request.member_id)
        or validate_length("group_instance_id", request.group_instance_id)
    )


def validate_join(request: pb.JoinGroupRequest) -> str:
    """Validate a JoinGroup request."""
    named = ("group_id", "member_id", "group_instance_id", "client_id", "protocol_type", "reason")
    if request.rebalance_timeout_ms < 0:
        return f"rebalance_timeout_ms must be at least 0, not {request.rebalance_timeout_ms}"
    return (
        first_error(validate_length(name, getattr(request, name)) for name in named)
        or validate_count("protocols", request.protocols, PROTOCOLS_MAX)
        or first_error(validate_length("a protocol's name", protocol.name) for protocol in request.protocols)
        or validate_names(request)
    )


def validate_names(request: pb.JoinGroupRequest) -> str:
    """Return the error for an empty instance id or protocol name; empty when all have names."""
    if request.HasField("group_instance_id") and not request.group_instance_id:
        return "group_instance_id must not be empty; omit it for a dynamic member"
    number = next((n for n, protocol in enumerate(request.protocols, 1) if not protocol.name), 0)
    return f"protocol {number} has no name; every protocol must have a name" if number else ""


def validate_sync(request: pb.SyncGroupRequest) -> str:
    """Validate the protocol and the assignments of a SyncGroup request."""
    return (
        validate_length("protocol_type", request.protocol_type)
        or validate_length("protocol_name", request.protocol_name)
        or validate_count("assignments", request.assignments, MEMBERS_MAX)
        or first_error(validate_length("a member_id", each.member_id) for each in request.assignments)
    )


def validate_leave(request: pb.LeaveGroupRequest) -> str:
    """Validate the members of a LeaveGroup request."""
    return validate_count("members", request.members, MEMBERS_MAX) or first_error(
        validate_length("a member_id", each.member_id)
        or validate_length("a group_instance_id", each.group_instance_id)
        or validate_length("a reason", each.reason)
        for each in request.members
    )


def validate_producer(request: pb.TxnCommitOffsetsRequest) -> str:
    """Validate the producer of a transactional commit."""
    if request.producer_id < 0 or request.producer_epoch < 0:
        return f"producer {request.producer_id} at epoch {request.producer_epoch}: both must be at least 0"
    return validate_length("transactional_id", request.transactional_id)


def validate_offsets(topics: Collection[pb.TopicOffsets]) -> str:
    """Validate offsets to store."""
    error = validate_topics(topics)
    if error:
        return error
    for topic in topics:
        for partition in topic.partitions:
            if partition.index < 0 or partition.offset < 0 or partition.leader_epoch < -1:
                return (
                    f"partition {partition.index}, offset {partition.offset}, "
                    f"leader epoch {partition.leader_epoch}: must be at least 0; "
                    "a leader epoch of -1 means unknown"
                )
    return ""


def validate_partitions(topics: Collection[pb.TopicPartitions]) -> str:
    """Validate partitions to read or delete."""
    error = validate_topics(topics)
    if error:
        return error
    for topic in topics:
        lowest = min(topic.partitions, default=0)
        if lowest < 0:
            return f"partition {lowest}: must be at least 0"
    return ""


def validate_topics(topics: Collection[pb.TopicOffsets] | Collection[pb.TopicPartitions]) -> str:
    """Validate topic names and the number of partitions."""
    total = sum(len(topic.partitions) for topic in topics)
    if total > PARTITIONS_MAX:
        return f"{total} partitions in one request; at most {PARTITIONS_MAX} are allowed"
    return first_error(validate_topic(topic) for topic in topics)


def validate_topic(topic: pb.TopicOffsets | pb.TopicPartitions) -> str:
    """Validate a topic's name and id."""
    if len(topic.topic_id) not in TOPIC_ID_LENGTHS:
        return f"topic_id has {len(topic.topic_id)} bytes; expected 16, or 0 to skip the check"
    return validate_length("a topic's name", topic.name)


def validate_length(name: str, value: str) -> str:
    """Return the error for a string that is too long; empty when it is valid."""
    if len(value) <= TEXT_LENGTH_MAX:
        return ""
    return f"{name} has {len(value)} characters; at most {TEXT_LENGTH_MAX} are allowed"


def validate_count(name: str, values: Sized, most: int) -> str:
    """Return the error for more values than allowed; empty when the count is valid."""
    return "" if len(values) <= most else f"{len(values)} {name} in one request; at most {most} are allowed"


def first_error(errors: Iterable[str]) -> str:
    """Return the first non-empty error message; empty when there is none."""
    return next(filter(None, errors), "")
