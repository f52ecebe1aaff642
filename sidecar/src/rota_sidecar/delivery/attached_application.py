"""
Which application there is, one at a time: to those that attach it is there at once, to deliveries when they hear of it.

Used by `delivering`. Between the two lie events that were meant for who was there before.
"""

from collections.abc import Sequence

from rota_sidecar.application.port import Application, AttachedAlready
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on


class AttachedApplication:
    """None to begin with."""

    def __init__(self) -> None:
        self._sessions = 0
        self._there: tuple[int, Application] | None = None
        self._coming: dict[int, Application] = {}
        self._spoken_to: Application | None = None

    def attach(self, application: Application) -> int:
        """Its session. Raises AttachedAlready."""
        if self._there is not None:
            raise AttachedAlready(
                "an application is attached already, and a sidecar has one: end it first, or start another sidecar"
            )
        self._sessions += 1
        self._there = self._sessions, application
        self._coming[self._sessions] = application
        return self._sessions

    def detach(self, session: int) -> bool:
        """Whether it was there."""
        if self._there is None or self._there[0] != session:
            return False
        self._there = None
        return True

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return self._there is not None

    def on_event(self, event: on.Event) -> None:
        """Deliveries are about to."""
        match event:
            case on.Attached():
                self._spoken_to = self._coming.pop(event.session)
            case on.Detached():
                self._spoken_to = None
            case _:
                pass

    def tell(self, event: do.Tell) -> None:
        """If it is still there."""
        if self._spoken_to is not None:
            self._spoken_to.tell(event)

    def report(self, error: do.PartitionError) -> None:
        """If it is still there; another application is told when it has acknowledged the partitions."""
        if self._spoken_to is not None:
            self._spoken_to.report(error)

    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        """If it is still there; what it does not get it is not charged with."""
        if self._spoken_to is not None:
            self._spoken_to.deliver(deliveries)

    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        """If it is still there."""
        if self._spoken_to is not None:
            self._spoken_to.refuse(refusals)

    def close(self, reason: str) -> None:
        """The sidecar ends."""
        if self._there is not None:
            self._there[1].close(reason)
