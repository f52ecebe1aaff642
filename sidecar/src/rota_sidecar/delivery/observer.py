"""Interface for counting and logging deliveries. Called by the delivery driver; implementations are fast and do not raise."""

from collections.abc import Sequence
from typing import Protocol

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.membership.driver import MemberEvent


class Observer(Protocol):
    """An observer of one delivery driver, called in the order of its events."""

    def on_member_event(self, event: MemberEvent, now_ms: int) -> None:
        """Observe an event of the member."""
        ...

    def on_event(self, event: on.Event, now_ms: int) -> None:
        """Observe an event before the core handles it."""
        ...

    def on_actions(self, actions: Sequence[do.Action], in_flight: int, now_ms: int) -> None:
        """Observe the core's actions before they are performed, with the number of records in flight after them."""
        ...
