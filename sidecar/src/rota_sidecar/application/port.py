"""Between the delivery's shell (`rota_sidecar.delivery.driver`) and whatever speaks with the application."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.engines.records import Records


class Application(Protocol):
    """What an attached application is told. None of these may block or raise."""

    def on_assignment_event(self, event: do.AssignmentEvent) -> None:
        """Something happens to partitions."""
        ...

    def report(self, error: do.PartitionError) -> None:
        """It gets no records of some partitions, for a reason to which it can react."""
        ...

    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        """Records, as far as it gave credit."""
        ...

    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        """It was wrong."""
        ...

    def close(self, reason: str) -> None:
        """The sidecar ends the attachment."""
        ...


class AttachedAlready(Exception):
    """There is an application: one sentence."""


class Deliveries(Protocol):
    """What applications can do; `rota_sidecar.delivery.driver.DeliveryDriver` is it."""

    @property
    def config(self) -> DeliveryConfig:
        """As it is now."""
        ...

    @property
    def records(self) -> Records:
        """For look-ups."""
        ...

    def now_ms(self) -> int:
        """The clock of the deadlines in what applications are told."""
        ...

    def attach(
        self, application: Application, *, commits_itself: bool, reads_itself: bool, takes_many: bool
    ) -> int:
        """Its session. Raises AttachedAlready."""
        ...

    def detach(self, session: int, *, clean: bool) -> None:
        """It is gone; a second time changes nothing."""
        ...

    def on_application_event(self, event: on.Acknowledged | on.Credit | on.Judged | on.Reported) -> None:
        """What the attached application says."""
        ...

    async def ask(self, asked: "on.ApplicationRequest | on.ResetOffsets") -> do.Answer:
        """
        The answer; the request's number is filled in here. Waits as long as the coordinator does, within the caller's
        own deadline.
        """
        ...

    async def subscribe(self, topics: Sequence[str], pattern: str) -> None:
        """Want other topics; none at all: leave the group. Ends what was assigned by hand."""
        ...

    async def assign(self, partitions: frozenset[Partition]) -> None:
        """Read these outside of the group's assignment; leaves the group."""
        ...

    async def committed(
        self, partitions: Sequence[Partition], within_s: float
    ) -> Mapping[Partition, on.Stored]:
        """What is committed. Raises Unreachable, Refused."""
        ...

    async def partitions_of(self, topic: str, within_s: float) -> int | None:
        """How many; None = there is no such topic. Raises Unreachable, Refused."""
        ...

    @property
    def held(self) -> Mapping[Partition, Tenure]:
        """What is assigned."""
        ...

    @property
    def paused(self) -> frozenset[Partition]:
        """What was paused by the application."""
        ...

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The next offset that each partition hands out."""
        ...
