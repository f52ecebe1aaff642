"""
Deliveries: what happens next between a member, its partitions' records and the application.

Called by the sidecar's shell, which feeds events, performs the actions in order, and sends a Tick when the alarm says so.
"""

from collections.abc import Mapping, Sequence

from rota_sidecar.delivery import events as on
from rota_sidecar.delivery.actions import Action
from rota_sidecar.delivery.config import DeliveryConfig
from rota_sidecar.delivery.views import PartitionView
from rota_sidecar.member.partitions import Partition, Tenure


class Delivery:
    """All partitions that one application has."""

    def __init__(self, config: DeliveryConfig) -> None:
        raise NotImplementedError

    @property
    def config(self) -> DeliveryConfig:
        """As it is now."""
        raise NotImplementedError

    @property
    def alarm(self) -> int | None:
        """When it wants a Tick; in the past: now. Ask after every step."""
        raise NotImplementedError

    @property
    def held(self) -> Mapping[Partition, Tenure]:
        """What is assigned; what is on its way to others is among it until it is gone."""
        raise NotImplementedError

    @property
    def paused(self) -> frozenset[Partition]:
        """What was paused by the application."""
        raise NotImplementedError

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The next offset that each partition hands out, where that is known."""
        raise NotImplementedError

    @property
    def readiness(self) -> str:
        """Why it is out of the group: one sentence; empty while it is not."""
        raise NotImplementedError

    @property
    def partitions(self) -> Mapping[Partition, PartitionView]:
        """Everything that there is to see."""
        raise NotImplementedError

    def step(self, event: on.Event, now_ms: int) -> Sequence[Action]:
        """What is to be done about the event. `now_ms` never falls."""
        raise NotImplementedError
