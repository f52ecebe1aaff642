"""What `delivering` tells those who count or write down what happens. They are quick, and never fail."""

from collections.abc import Sequence
from typing import Protocol

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.membership.driver import MemberEvent


class Observer(Protocol):
    """Somebody who wants to know."""

    def on_member_event(self, event: MemberEvent, now_ms: int) -> None:
        """What the member says."""
        ...

    def on_event(self, event: on.Event, now_ms: int) -> None:
        """What deliveries are told, before they are."""
        ...

    def on_actions(self, actions: Sequence[do.Action], in_flight: int, now_ms: int) -> None:
        """What they want done, before it is; and how many records the application has then."""
        ...
