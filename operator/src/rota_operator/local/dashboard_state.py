"""
Current state of all groups and workloads, with notification of changes, and what was recorded of the groups.

Updated by the runner, the Fleet server and the group watches; read by the page, the table, resets and the demo.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import Description
from rota_operator.overview.offsets import PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.recording import START, Cursor, GroupRecording, RecordingDelta
from rota_operator.overview.view import EventKind, GroupView, View, WorkloadView
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport

# Maximum time between two snapshots: values age without an update.
AT_LEAST_EVERY_S = 1.0
RECORD_EVERY_S = 1.0


class DashboardState:
    """
    Thread-confined to one event loop; `wall_ms` is the wall clock.

    Invariant: every update sets `_changed` and replaces it, so each waiter wakes up at least once per update.
    """

    def __init__(
        self, overview: Overview, workloads: Callable[[], Sequence[WorkloadView]], wall_ms: Callable[[], int]
    ) -> None:
        self._overview = overview
        self._workloads = workloads
        self._wall_ms = wall_ms
        self._recordings = {key: GroupRecording(key) for key in overview.keys}
        self._changed = asyncio.Event()

    def view(self) -> View:
        """Return a snapshot of the current state."""
        return self._overview.view(self._workloads(), self._wall_ms())

    def group(self, group_id: str) -> GroupView | None:
        """Return a snapshot of one group; None: it is not one of the runner's."""
        return self._overview.group(group_id, self._workloads(), self._wall_ms())

    async def run_recording(self) -> None:
        """Record all groups once a second until cancelled, whether or not a browser shows them."""
        while True:
            self.record_all()
            await asyncio.sleep(RECORD_EVERY_S)

    def record_all(self) -> None:
        """Record the present state of all groups."""
        now_ms = self._wall_ms()
        for key in self._recordings:
            self._record(key, now_ms)

    def recorded_since(self, cursors: Mapping[str, Cursor]) -> Sequence[RecordingDelta]:
        """Return what was recorded of each group after its cursor, by group id; everything of a group without one."""
        return [each.since(cursors.get(key, START)) for key, each in self._recordings.items()]

    def reports(self, group_id: str) -> Mapping[str, SidecarReport]:
        """Return the live reports of a group's sidecars, by sidecar name."""
        return self._overview.reports(group_id, self._wall_ms())

    def client_ids(self, group_id: str) -> frozenset[str] | None:
        """Return the client ids of a group's members, as its engine describes them; None: it does not."""
        return self._overview.client_ids(group_id)

    async def wait_for_change(self) -> None:
        """Wait for the next update, for at most AT_LEAST_EVERY_S: values expire without an update."""
        try:
            async with asyncio.timeout(AT_LEAST_EVERY_S):
                await self._changed.wait()
        except TimeoutError:
            return

    def add_report(self, add_report: SidecarReport) -> None:
        """Add a sidecar's report."""
        self._overview.add_report(add_report, self._wall_ms())
        self.notify()

    def update_description(self, found: Description) -> None:
        """Replace the engine's description of a group."""
        now_ms = self._wall_ms()
        self._overview.update_description(found, now_ms)
        self._record(found.group_id, now_ms)
        self.notify()

    def update_offsets(self, group_id: str, found: Mapping[Partition, PartitionOffsets]) -> None:
        """Replace the engine's offsets of a group."""
        self._overview.update_offsets(group_id, found, self._wall_ms())
        self.notify()

    def owned(self, group_id: str) -> frozenset[Partition]:
        """Return the partitions of a group that have an owner."""
        return self._overview.owned(group_id)

    def coordinator_lost(self, group_id: str) -> None:
        """Discard the description of a group whose coordinator does not answer."""
        self._overview.coordinator_lost(group_id)
        self._record(group_id, self._wall_ms())
        self.notify()

    def record_event(self, group_id: str | None, kind: EventKind, message: str) -> None:
        """Append an event to the group's history; no-op without a group."""
        self._overview.record_event(group_id, kind, message, self._wall_ms())
        self.notify()

    def remove_replica(self, group_id: str | None, replica: str) -> None:
        """Discard the reports of a replica that has stopped."""
        self._overview.remove_replica(group_id, replica)
        self.notify()

    def _record(self, group_id: str, now_ms: int) -> None:
        view = self._overview.group(group_id, self._workloads(), now_ms)
        if view is not None and (recording := self._recordings.get(group_id)) is not None:
            recording.record(view, now_ms)

    def notify(self) -> None:
        """Wake up all waiters."""
        self._changed.set()
        self._changed = asyncio.Event()
