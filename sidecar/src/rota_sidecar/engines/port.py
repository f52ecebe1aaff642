"""
Interfaces of a group's coordinator and of topics, as the membership driver uses them. Requests and responses are messages
of Rota's protocol for each backend.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.member.messages import Request, Response


class Unreachable(Exception):
    """The server did not answer, or not in time. Retriable; the message says what to check."""


class Refused(Exception):
    """The server rejected the request or the client. Not retriable; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the group's coordinator was lost."""

    reason: str


CoordinatorEvent = pb.RebalanceNotice | pb.GoAway | Disconnected
"""An event of the coordinator's connection that answers no request. On Kafka only the loss of the connection."""

OnCoordinatorEvent = Callable[[CoordinatorEvent], None]


class Coordination(Protocol):
    """
    The client of one group's coordinator, which may move between servers.

    Invariant: at most one coordinator is connected, the one that `find` found last.
    """

    async def find(self, within_s: float) -> pb.ErrorCode.ValueType:
        """Find the coordinator and connect to it; an earlier connection is closed first. Raises Unreachable, Refused."""
        ...

    async def ask(self, request: Request, within_s: float) -> Response:
        """
        Send a request to the coordinator and return its response. Several may be in flight; a JoinGroup or SyncGroup that
        waits for other members delays no other request.

        Raises Unreachable if there is no response within `within_s` or the connection is lost, and Refused.
        """
        ...

    async def incarnation(self, within_s: float) -> int | None:
        """Return the group's incarnation, which is set when the group is created; None: the backend has none."""
        ...

    async def close(self) -> None:
        """Close all connections; no event follows."""
        ...


class Topics(Protocol):
    """Descriptions of topics."""

    async def describe(self, names: Collection[str] | None, within_s: float) -> Mapping[str, Topic]:
        """Describe the topics that exist; names None: all that this client may see. Raises Unreachable, Refused."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...
