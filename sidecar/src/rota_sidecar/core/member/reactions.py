"""
Reactions of a member to error codes, for each request, as Kafka's consumer has them.

Responses to an earlier generation or to an abandoned call are ignored before this table is asked.
"""

import enum
from collections.abc import Mapping
from typing import TypeAlias

from rota_proto.coordinator.v1 import coordinator_pb2 as pb

Error: TypeAlias = pb.ErrorCode.ValueType


class Reaction(enum.Enum):
    """Reaction to an error, in ascending severity."""

    NOTHING = enum.auto()
    # Retry after a backoff.
    RETRY = enum.auto()
    # Find the coordinator again; the membership is kept.
    REDISCOVER = enum.auto()
    # Send JoinGroup for the next generation.
    REJOIN = enum.auto()
    # Join under the member id of the response.
    ADOPT_MEMBER_ID = enum.auto()
    # Lose all partitions, and join under the same member id.
    FORGET_GENERATION = enum.auto()
    # Lose all partitions, and join under a new member id.
    FORGET_MEMBER = enum.auto()
    # Stop: a retry cannot succeed.
    END = enum.auto()


class Api(enum.Enum):
    """Requests of a member."""

    FIND = enum.auto()
    JOIN = enum.auto()
    SYNC = enum.auto()
    HEARTBEAT = enum.auto()
    COMMIT = enum.auto()
    FETCH = enum.auto()


MOVED = {
    pb.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
    pb.NOT_COORDINATOR: Reaction.REDISCOVER,
}
TRANSIENT = {
    # Kafka's consumer stops when a coordinator that loads answers a sync. A retry is enough.
    pb.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    pb.REQUEST_TIMED_OUT: Reaction.REDISCOVER,
}
MEMBERSHIP = {
    pb.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER,
    pb.ILLEGAL_GENERATION: Reaction.FORGET_GENERATION,
    # Another process has this instance id now, and the coordinator fences the older one for good.
    pb.FENCED_INSTANCE_ID: Reaction.END,
}
TABLE: Mapping[Api, Mapping[Error, Reaction]] = {
    Api.FIND: {
        pb.COORDINATOR_NOT_AVAILABLE: Reaction.RETRY,
        pb.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        pb.NOT_COORDINATOR: Reaction.RETRY,
        pb.REQUEST_TIMED_OUT: Reaction.RETRY,
        # Brokers answer so while they start.
        pb.UNKNOWN_SERVER_ERROR: Reaction.RETRY,
    },
    Api.JOIN: {
        **MOVED,
        **TRANSIENT,
        **MEMBERSHIP,
        pb.MEMBER_ID_REQUIRED: Reaction.ADOPT_MEMBER_ID,
        pb.REBALANCE_IN_PROGRESS: Reaction.RETRY,
        pb.UNKNOWN_SERVER_ERROR: Reaction.RETRY,
    },
    Api.SYNC: {
        **MOVED,
        **TRANSIENT,
        **MEMBERSHIP,
        pb.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        pb.UNKNOWN_SERVER_ERROR: Reaction.RETRY,
    },
    Api.HEARTBEAT: {
        **MOVED,
        **TRANSIENT,
        **MEMBERSHIP,
        pb.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        pb.UNKNOWN_SERVER_ERROR: Reaction.RETRY,
    },
    # All other errors of a commit or fetch concern its offsets only, and are part of its outcome.
    Api.COMMIT: {
        **MOVED,
        **MEMBERSHIP,
        pb.REQUEST_TIMED_OUT: Reaction.REDISCOVER,
        pb.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        pb.GROUP_AUTHORIZATION_FAILED: Reaction.END,
    },
    Api.FETCH: {
        **MOVED,
        pb.REQUEST_TIMED_OUT: Reaction.REDISCOVER,
        pb.GROUP_AUTHORIZATION_FAILED: Reaction.END,
    },
}
# Reactions to errors that the table leaves out.
OTHERWISE = {
    Api.FIND: Reaction.END,
    Api.JOIN: Reaction.END,
    Api.SYNC: Reaction.END,
    Api.HEARTBEAT: Reaction.END,
    Api.COMMIT: Reaction.NOTHING,
    Api.FETCH: Reaction.NOTHING,
}


def reaction(api: Api, error: Error) -> Reaction:
    """Return the reaction to an error of a response."""
    if error == pb.NONE:
        return Reaction.NOTHING
    return TABLE[api].get(error, OTHERWISE[api])


ADVICE = {
    pb.REQUEST_TIMED_OUT: "it did not complete a request in time; this sidecar repeats the request",
    pb.GROUP_AUTHORIZATION_FAILED: "grant this client access to the group, or use another group id",
    pb.FENCED_INSTANCE_ID: "another member has this instance id now; start one process per instance id",
    pb.INCONSISTENT_GROUP_PROTOCOL: (
        "this member shares no assignment strategy with the other members; offer one of theirs, or migrate in two steps"
    ),
    pb.INVALID_SESSION_TIMEOUT: "the session timeout is outside the coordinator's limits",
    pb.INVALID_GROUP_ID: "choose another group id",
    pb.GROUP_MAX_SIZE_REACHED: "the group is full; raise the coordinator's limit, or run fewer members",
    pb.UNSUPPORTED_VERSION: "the server is too old for this sidecar",
}


def error_message(group_id: str, error: Error) -> str:
    """Describe an error of the coordinator and the next step in one sentence."""
    said = pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)
    advice = ADVICE.get(error, "see the coordinator's log")
    return f"the coordinator of group {group_id} answered {said}: {advice}"
