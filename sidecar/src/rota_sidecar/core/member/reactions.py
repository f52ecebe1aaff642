"""
What a member does about an error: Kafka's table, for every request.

An answer that was given to who the member was before (another generation, a call given up) never gets here.
"""

import enum
from collections.abc import Mapping
from typing import TypeAlias

from rota_proto.coordinator.v1 import coordinator_pb2 as pb

Error: TypeAlias = pb.ErrorCode.ValueType


class Reaction(enum.Enum):
    """What is done, from the mildest to the hardest."""

    NOTHING = enum.auto()
    # Ask again, after a while.
    RETRY = enum.auto()
    # Look for the coordinator anew; the membership is not in doubt.
    REDISCOVER = enum.auto()
    # Come to the next round.
    REJOIN = enum.auto()
    # Join under the id that the answer gives.
    ADOPT_MEMBER_ID = enum.auto()
    # What the member has is lost. It joins again under its id.
    FORGET_GENERATION = enum.auto()
    # What the member has is lost. It joins again as somebody new.
    FORGET_MEMBER = enum.auto()
    # Only somebody else can mend it.
    END = enum.auto()


class Api(enum.Enum):
    """What was asked."""

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
    # Kafka's consumer gives up when a sync meets a coordinator that loads. It only has to come again.
    pb.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    pb.REQUEST_TIMED_OUT: Reaction.REDISCOVER,
}
MEMBERSHIP = {
    pb.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER,
    pb.ILLEGAL_GENERATION: Reaction.FORGET_GENERATION,
    # Somebody else is this static member now, and was told so by whoever started it: it never takes that back.
    pb.FENCED_INSTANCE_ID: Reaction.END,
}
TABLE: Mapping[Api, Mapping[Error, Reaction]] = {
    Api.FIND: {
        pb.COORDINATOR_NOT_AVAILABLE: Reaction.RETRY,
        pb.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
        pb.NOT_COORDINATOR: Reaction.RETRY,
        pb.REQUEST_TIMED_OUT: Reaction.RETRY,
        # A broker that starts can do neither yet.
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
    # What else a commit or a fetch may be told concerns its offsets, and whoever asked for it is told.
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
# What the table does not name.
OTHERWISE = {
    Api.FIND: Reaction.END,
    Api.JOIN: Reaction.END,
    Api.SYNC: Reaction.END,
    Api.HEARTBEAT: Reaction.END,
    Api.COMMIT: Reaction.NOTHING,
    Api.FETCH: Reaction.NOTHING,
}


def reaction(api: Api, error: Error) -> Reaction:
    """What the member does."""
    if error == pb.NONE:
        return Reaction.NOTHING
    return TABLE[api].get(error, OTHERWISE[api])


ADVICE = {
    pb.GROUP_AUTHORIZATION_FAILED: "grant this client the group, or give it another group id",
    pb.FENCED_INSTANCE_ID: "another member has this instance id now; start one process for each instance id",
    pb.INCONSISTENT_GROUP_PROTOCOL: (
        "the members of the group share no strategy with this one; offer one of theirs, or change them all in two steps"
    ),
    pb.INVALID_SESSION_TIMEOUT: "the coordinator allows no such session timeout; see its limits",
    pb.INVALID_GROUP_ID: "choose another group id",
    pb.GROUP_MAX_SIZE_REACHED: "the group is full; raise the coordinator's limit, or run fewer members",
    pb.UNSUPPORTED_VERSION: "the server is too old for this sidecar",
}


def error_message(group_id: str, error: Error) -> str:
    """Why the member ends."""
    said = pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)
    advice = ADVICE.get(error, "see the coordinator's log")
    return f"the coordinator of group {group_id} says {said}: {advice}"
