"""
The attached application, at most one at a time. Used by the delivery driver.

`attach` and `detach` take effect at once for the caller, and for deliveries when the driver handles their events:
events in between belong to the application before.
"""

from collections.abc import Sequence

from rota_sidecar.application.port import Application, AttachedAlready
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on


class AttachedApplication:
    """
    The present application, and the one that the core knows.

    Invariant: calls of the core reach the application whose Attached event was handled last, and no other.
    """

    def __init__(self) -> None:
        self._sessions = 0
        self._there: tuple[int, Application] | None = None
        self._coming: dict[int, Application] = {}
        self._current: Application | None = None

    def attach(self, application: Application) -> int:
        """Attach the application and return its session. Raises AttachedAlready."""
        if self._there is not None:
            raise AttachedAlready(
                "an application is already attached, and a sidecar serves one: stop it first, or start another sidecar"
            )
        self._sessions += 1
        self._there = self._sessions, application
        self._coming[self._sessions] = application
        return self._sessions

    def detach(self, session: int) -> bool:
        """Detach the session; false: it is not attached."""
        if self._there is None or self._there[0] != session:
            return False
        self._there = None
        return True

    @property
    def is_there(self) -> bool:
        """Return True if an application is attached."""
        return self._there is not None

    def on_event(self, event: on.Event) -> None:
        """Follow the Attached and Detached events that the core is about to handle."""
        match event:
            case on.Attached():
                self._current = self._coming.pop(event.session)
            case on.Detached():
                self._current = None
            case _:
                pass

    def on_assignment_event(self, event: do.AssignmentEvent) -> None:
        """Notify the application of a change of its partitions, if it is still attached."""
        if self._current is not None:
            self._current.on_assignment_event(event)

    def report(self, error: do.PartitionError) -> None:
        """
        Report an error of partitions, if the application is still attached; another one gets it after its
        acknowledgement.
        """
        if self._current is not None:
            self._current.report(error)

    def on_commit(self, committed: do.OffsetsCommitted) -> None:
        """Notify the application of a commit, if it is still attached."""
        if self._current is not None:
            self._current.on_commit(committed)

    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        """Deliver records, if the application is still attached; records that it does not get are not counted as delivered."""
        if self._current is not None:
            self._current.deliver(deliveries)

    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        """Return refused verdicts, if the application is still attached."""
        if self._current is not None:
            self._current.refuse(refusals)

    def close(self, reason: str) -> None:
        """End the attachment, because the sidecar stops."""
        if self._there is not None:
            self._there[1].close(reason)
