"""Effects of a decision, performed by the shell: records to write, responses and notices to send, in that order."""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from google.protobuf.message import Message

from rota_proto.coordinator.v1.coordinator_pb2 import RebalanceNotice
from rota_proto.coordinator.v1.records_pb2 import Record

# Id of an open request: the shell passes it with the request, and the core returns it with the response.
Call = NewType("Call", int)


class Cause(enum.Enum):
    """The cause of a round of joins; a fixed set, because it is a metric label."""

    JOINED = "member_joined"
    JOINED_AGAIN = "member_joined_again"  # the leader, or a member with other protocols
    CAME_BACK = "static_member_came_back"
    LEFT = "member_left"
    SILENT = "session_ended"
    NEVER_SYNCED = "never_synced"
    TOO_LARGE = "group_too_large"


class RoundOpened(NamedTuple):
    """A round of joins opened; the group has no settled assignment until `RoundSettled`."""

    group_id: str
    generation: int  # the previous one
    cause: Cause


class RoundSettled(NamedTuple):
    """The rebalance ended: the group has an assignment again, or no members."""

    group_id: str
    generation: int
    members: int
    unsettled_ms: int


Round = RoundOpened | RoundSettled


@dataclass(slots=True)
class Effects:
    """
    Effects of one decision. The shell writes `records` first; once they are durable, it sends the responses, aborts
    superseded calls and pushes the notices.

    Ordering: no later response of the same slot overtakes records that are being written, because it could show a
    state that a crash undoes.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Call, Message]] = field(default_factory=list)
    # Calls that a newer call of the same member replaces.
    superseded: list[Call] = field(default_factory=list)
    notices: list[RebalanceNotice] = field(default_factory=list)
    # Removed members as (group id, member id); their sessions receive no more notices.
    removed_members: list[tuple[str, str]] = field(default_factory=list)
    # Changes of the group's rounds, for logs and metrics.
    rounds: list[Round] = field(default_factory=list)
