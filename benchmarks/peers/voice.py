"""
Requests of a benchmark's member, the same for each coordinator.

`rota.py` and `wire.py` implement it; `members.py` uses it to form groups, and to keep them alive.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rota_proto.coordinator.v1 import coordinator_pb2 as pb

TOPIC = "bench"
PROTOCOL_TYPE = "consumer"
PROTOCOL = "range"
CLIENT_ID = "bench"
SESSION_TIMEOUT_MS = 45_000
# As Kafka's clients have it.
REBALANCE_TIMEOUT_MS = 300_000
HEARTBEAT_S = 3.0


class Refused(Exception):
    """A coordinator answered with an error where none was expected."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join."""

    error: int
    generation: int
    member_id: str
    leader: str
    members: tuple[str, ...]

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id


class Voice(Protocol):
    """One member's way to its coordinator."""

    async def join(self, member_id: str, metadata: bytes) -> Joined:
        """JoinGroup, and its answer."""
        ...

    async def sync(self, joined: Joined, assignments: Mapping[str, bytes]) -> int:
        """SyncGroup; the error code."""
        ...

    async def must_join(self, joined: Joined) -> None:
        """Heartbeat as clients do; returns when the coordinator has told of a rebalance, in its own way."""
        ...


def check(error: int, what: str) -> None:
    """Stop the benchmark at an answer that was not expected: a figure made of errors says nothing."""
    if error:
        raise Refused(f"{what} was refused with {pb.ErrorCode.Name(pb.ErrorCode.ValueType(error))}")
