"""

Port of a member's requests, which is the same for both coordinators.
`rota.py` and `wire.py` implement it; `members.py` uses it to form and to maintain groups.
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
# The default of Kafka's clients.
REBALANCE_TIMEOUT_MS = 300_000
HEARTBEAT_S = 3.0


class Refused(Exception):
    """A coordinator answered with an unexpected error."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The response to a join."""

    error: int
    generation: int
    member_id: str
    leader: str
    members: tuple[str, ...]

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id


class Voice(Protocol):
    """The requests of one member."""

    async def join(self, member_id: str, metadata: bytes) -> Joined:
        """Send JoinGroup, and return the response."""
        ...

    async def sync(self, joined: Joined, assignments: Mapping[str, bytes]) -> int:
        """Send SyncGroup, and return the error code."""
        ...

    async def must_join(self, joined: Joined) -> None:
        """Send heartbeats like a client until the coordinator reports a rebalance, by an error or by a notice."""
        ...


def check(error: int, what: str) -> None:
    """Raise Refused on an unexpected error, because figures of failed requests are meaningless."""
    if error:
        raise Refused(f"{what} was refused with {pb.ErrorCode.Name(pb.ErrorCode.ValueType(error))}")
