"""Effects that a decision asks of the shell; the order of the first three is part of their meaning."""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from google.protobuf.message import Message

from rota_proto.coordinator.v1.coordinator_pb2 import RebalanceNotice
from rota_proto.coordinator.v1.records_pb2 import Record

# One open request. Given by the shell with the request; the core gives it back with the answer.
Call = NewType("Call", int)


class Cause(enum.Enum):
    """Why a round of joins opened. Few and fixed, so that rounds can be counted by it."""

    JOINED = "member_joined"
    JOINED_AGAIN = "member_joined_again"  # the leader, or a member with other protocols
    CAME_BACK = "static_member_came_back"
    LEFT = "member_left"
    SILENT = "session_ended"
    NEVER_SYNCED = "never_synced"
    TOO_LARGE = "group_too_large"


class RoundOpened(NamedTuple):
    """From here on the group has no settled assignment."""

    group_id: str
    generation: int  # the one that it had
    cause: Cause


class RoundSettled(NamedTuple):
    """The group has an assignment again, or no members any more."""

    group_id: str
    generation: int
    members: int
    unsettled_ms: int


Round = RoundOpened | RoundSettled


@dataclass(slots=True)
class Effects:
    """
    Make `records` durable first. Then answer, and abort what will never be answered, and push the notices.

    No later answer of the same slot may overtake records that are still being written: it could show a state
    that a crash takes back.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Call, Message]] = field(default_factory=list)
    # Calls whose place a newer call of the same member took.
    superseded: list[Call] = field(default_factory=list)
    notices: list[RebalanceNotice] = field(default_factory=list)
    # Members that are in no group any more, as (group id, member id): nobody has to be told on their behalf.
    removed_members: list[tuple[str, str]] = field(default_factory=list)
    # What became of the group's rounds, for people and their graphs.
    rounds: list[Round] = field(default_factory=list)
