"""What is shown of all groups and workloads, and who waits for it to change. Fed by the runner, the Fleet and the watches."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import Description
from rota_operator.overview.offsets import PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import Holding, Kind, View, WorkloadView
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport

# What is shown grows older by itself: it is looked at anew at least so often.
AT_LEAST_EVERY_S = 1.0


class Board:
    """To be made and used on a running loop. The clock is the time of day."""

    def __init__(
        self, overview: Overview, workloads: Callable[[], Sequence[WorkloadView]], wall_ms: Callable[[], int]
    ) -> None:
        self._overview = overview
        self._workloads = workloads
        self._wall_ms = wall_ms
        self._news = asyncio.Event()

    def view(self) -> View:
        """Now."""
        return self._overview.view(self._workloads(), self._wall_ms())

    def holdings(self, group_id: str) -> Mapping[str, Holding]:
        """What each sidecar of a group has."""
        return self._overview.holdings(group_id, self._wall_ms())

    async def change(self) -> None:
        """Return when it has changed, or may look different by now."""
        try:
            async with asyncio.timeout(AT_LEAST_EVERY_S):
                await self._news.wait()
        except TimeoutError:
            return

    def report(self, report: SidecarReport) -> None:
        """A sidecar reports."""
        self._overview.hear_report(report, self._wall_ms())
        self.changed()

    def describe(self, found: Description) -> None:
        """Show the description of a group by its coordinator or broker."""
        self._overview.hear_description(found, self._wall_ms())
        self.changed()

    def measured(self, group_id: str, found: Mapping[Partition, PartitionOffsets]) -> None:
        """Show the offsets of a group by its engine."""
        self._overview.hear_offsets(group_id, found, self._wall_ms())
        self.changed()

    def owned(self, group_id: str) -> frozenset[Partition]:
        """Partitions of a group that have an owner."""
        return self._overview.owned(group_id)

    def coordinator_is_away(self, group_id: str) -> None:
        """Nobody describes this group for now."""
        self._overview.coordinator_is_away(group_id)
        self.changed()

    def happened(self, group_id: str | None, kind: Kind, sentence: str) -> None:
        """Something to be remembered with the group."""
        self._overview.happened(group_id, kind, sentence, self._wall_ms())
        self.changed()

    def gone(self, group_id: str | None, replica: str) -> None:
        """Nothing of this replica runs any more."""
        self._overview.gone(group_id, replica)
        self.changed()

    def changed(self) -> None:
        """Whoever waits looks again."""
        self._news.set()
        self._news = asyncio.Event()
