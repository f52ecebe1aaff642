"""What is shown of all groups and workloads, and who waits for it to change. Fed by the runner, the Fleet and the watches."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import Description
from rota_operator.overview.offsets import PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import EventKind, OwnedPartitions, View, WorkloadView
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport

# What is shown grows older by itself: it is looked at anew at least so often.
AT_LEAST_EVERY_S = 1.0


class DashboardState:
    """To be made and used on a running loop. The clock is the time of day."""

    def __init__(
        self, overview: Overview, workloads: Callable[[], Sequence[WorkloadView]], wall_ms: Callable[[], int]
    ) -> None:
        self._overview = overview
        self._workloads = workloads
        self._wall_ms = wall_ms
        self._changed = asyncio.Event()

    def view(self) -> View:
        """Now."""
        return self._overview.view(self._workloads(), self._wall_ms())

    def owned_partitions(self, group_id: str) -> Mapping[str, OwnedPartitions]:
        """What each sidecar of a group has."""
        return self._overview.owned_partitions(group_id, self._wall_ms())

    async def wait_for_change(self) -> None:
        """Return when it has changed, or may look different by now."""
        try:
            async with asyncio.timeout(AT_LEAST_EVERY_S):
                await self._changed.wait()
        except TimeoutError:
            return

    def add_report(self, add_report: SidecarReport) -> None:
        """A sidecar reports."""
        self._overview.add_report(add_report, self._wall_ms())
        self.notify()

    def update_description(self, found: Description) -> None:
        """Show the description of a group by its coordinator or broker."""
        self._overview.update_description(found, self._wall_ms())
        self.notify()

    def update_offsets(self, group_id: str, found: Mapping[Partition, PartitionOffsets]) -> None:
        """Show the offsets of a group by its engine."""
        self._overview.update_offsets(group_id, found, self._wall_ms())
        self.notify()

    def owned(self, group_id: str) -> frozenset[Partition]:
        """Partitions of a group that have an owner."""
        return self._overview.owned(group_id)

    def coordinator_lost(self, group_id: str) -> None:
        """Nobody describes this group for now."""
        self._overview.coordinator_lost(group_id)
        self.notify()

    def record_event(self, group_id: str | None, kind: EventKind, message: str) -> None:
        """Something to be remembered with the group."""
        self._overview.record_event(group_id, kind, message, self._wall_ms())
        self.notify()

    def remove_replica(self, group_id: str | None, replica: str) -> None:
        """Nothing of this replica runs any more."""
        self._overview.remove_replica(group_id, replica)
        self.notify()

    def notify(self) -> None:
        """Whoever waits looks again."""
        self._changed.set()
        self._changed = asyncio.Event()
