"""Interfaces between the delivery driver (`rota_sidecar.delivery.driver`) and the services for the application."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.engines.records import Records


class Application(Protocol):
    """An attached application, as the delivery driver calls it. The methods neither block nor raise."""

    def on_assignment_event(self, event: do.AssignmentEvent) -> None:
        """Notify the application of a change of its assignment."""
        ...

    def report(self, error: do.PartitionError) -> None:
        """Report partitions of which the application gets no records, with an error to which it can react."""
        ...

    def on_commit(self, committed: do.OffsetsCommitted) -> None:
        """Notify the application of offsets that the sidecar has committed by itself; only one that takes them."""
        ...

    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        """Deliver records, no more than the application granted credit for."""
        ...

    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        """Return refused verdicts to the application."""
        ...

    def close(self, reason: str) -> None:
        """End the attachment, because the sidecar stops."""
        ...


class AttachedAlready(Exception):
    """Another application is attached."""


class Deliveries(Protocol):
    """The operations of an application; implemented by `rota_sidecar.delivery.driver.DeliveryDriver`."""

    @property
    def config(self) -> DeliveryConfig:
        """The current settings."""
        ...

    @property
    def records(self) -> Records:
        """The backend's reader, for lookups of offsets."""
        ...

    def now_ms(self) -> int:
        """Return the time in milliseconds, on the clock of the deadlines in events."""
        ...

    def attach(
        self,
        application: Application,
        *,
        commits_itself: bool,
        reads_itself: bool,
        takes_many: bool,
        takes_commits: bool = False,
    ) -> int:
        """Attach an application; return its session. Raises AttachedAlready."""
        ...

    def detach(self, session: int, *, clean: bool) -> None:
        """Detach a session; no effect the second time."""
        ...

    def on_application_event(self, event: on.Acknowledged | on.Credit | on.Judged | on.Reported) -> None:
        """Post an event of the attached application."""
        ...

    async def ask(self, asked: "on.ApplicationRequest | on.ResetOffsets") -> do.Answer:
        """
        Post a request, whose number is set here, and return its answer. The caller sets the deadline: a commit waits as
        long as the coordinator is unreachable.
        """
        ...

    async def subscribe(self, topics: Sequence[str], pattern: str) -> None:
        """Subscribe to topics; no topics and no pattern: leave the group. Revokes manually assigned partitions."""
        ...

    async def assign(self, partitions: frozenset[Partition]) -> None:
        """Assign these partitions manually; leaves the group."""
        ...

    async def committed(
        self, partitions: Sequence[Partition], within_s: float
    ) -> Mapping[Partition, on.Stored]:
        """Return the committed offsets of the group. Raises Unreachable, Refused."""
        ...

    async def partitions_of(self, topic: str, within_s: float) -> int | None:
        """Return the number of partitions of a topic; None: it does not exist. Raises Unreachable, Refused."""
        ...

    async def topics(self, within_s: float) -> Collection[str]:
        """Return the topics that this client may describe, without internal ones. Raises Unreachable, Refused."""
        ...

    @property
    def held(self) -> Mapping[Partition, Tenure]:
        """The assigned partitions with their tenures."""
        ...

    @property
    def paused(self) -> frozenset[Partition]:
        """The partitions that the application has paused."""
        ...

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offset of the first record of each partition without a verdict."""
        ...
