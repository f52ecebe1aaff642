"""What the member's shell asks of an engine. Requests and answers are the protocol's own messages on each of them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.member.messages import Request, Response


class Unreachable(Exception):
    """Nobody answers there, or not in time: one sentence. Asking again may help."""


class Refused(Exception):
    """We are not let in, as we are: one sentence. Asking again does not help before somebody changes something."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the group's coordinator ended by itself."""

    reason: str


CoordinatorEvent = pb.RebalanceNotice | pb.GoAway | Disconnected
"""What is heard without having been asked for. On Kafka that is the end of the connection only."""

OnCoordinatorEvent = Callable[[CoordinatorEvent], None]


class Coordination(Protocol):
    """One group's coordinator, wherever it is now."""

    async def find(self, within_s: float) -> pb.ErrorCode.ValueType:
        """Look it up and connect to it; what was connected before is given up. Raises Unreachable, Refused."""
        ...

    async def ask(self, request: Request, within_s: float) -> Response:
        """
        Ask the coordinator that was found. Several may wait at once; a join or a sync holds up nothing else.

        Raises Unreachable when there is no answer in time or the connection ended, and Refused.
        """
        ...

    async def incarnation(self, within_s: float) -> int | None:
        """The number that the engine minted when the group was born; None where the engine has no such thing."""
        ...

    async def close(self) -> None:
        """End all connections; nothing is heard any more."""
        ...


class Topics(Protocol):
    """What topics there are."""

    async def describe(self, names: Collection[str] | None, within_s: float) -> Mapping[str, Topic]:
        """Those of the names that exist; with None all that we may see. Raises Unreachable, Refused."""
        ...

    async def close(self) -> None:
        """End its connection."""
        ...
