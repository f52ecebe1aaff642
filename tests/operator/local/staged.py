"""A page whose state is staged: groups whose coordinator, offsets and sidecars say what a test wants, at times that it chooses."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rota_operator.local.dashboard_state import DashboardState
from rota_operator.local.page import Page
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import EMPTY, PREPARING, STABLE, DescribedMember, Description
from rota_operator.overview.offsets import PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import WorkloadView
from rota_operator.page.server import serve_page
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.support.chromium import Tab, browsing
from tests.support.ports import free_port

WITHIN_S = 60
START_MS = 1_790_000_000_000
TOPIC = "orders"
# Members by name, and the numbers of their partitions.
Assignment = Mapping[str, Sequence[int]]


class Stage:
    """Groups without processes, and a clock that stands still until it is moved."""

    def __init__(self, *groups: str) -> None:
        self.now_ms = START_MS
        self.workloads: list[WorkloadView] = []
        overview = Overview("rota://127.0.0.1:7070", [(group, f"shop/{group}") for group in groups])
        self.dashboard = DashboardState(overview, lambda: self.workloads, lambda: self.now_ms)

    def pass_time(self, seconds: int, step_s: int = 1) -> None:
        """Move the clock and record all groups at each step, as the runner does each second."""
        for _ in range(seconds // step_s):
            self.now_ms += 1_000 * step_s
            self.dashboard.record_all()

    def offsets(
        self, group: str, committed: Sequence[int | None], end: int, first_uncommitted_ms: int | None = None
    ) -> None:
        """The engine reports offsets, from partition 0 on."""
        found = {
            Partition(TOPIC, number): PartitionOffsets(each, 0, end, first_uncommitted_ms)
            for number, each in enumerate(committed)
        }
        self.dashboard.update_offsets(group, found)

    def stable(self, group: str, generation: int, assignment: Assignment, reason: str = "") -> None:
        """The coordinator describes a stable group."""
        self._describe(group, STABLE, generation, assignment, reason)

    def preparing(self, group: str, generation: int, members: Sequence[str], reason: str = "") -> None:
        """The coordinator describes a group that rebalances."""
        self._describe(group, PREPARING, generation, dict.fromkeys(members, ()), reason)

    def empty(self, group: str) -> None:
        """The coordinator describes a group without members."""
        self._describe(group, EMPTY, 1, {}, "")

    def report(self, group: str, member: pb.MemberReport, sidecar: str, numbers: Sequence[int]) -> None:
        """A sidecar reports its member, and two records a second that arrive in each of its partitions."""
        partitions = [
            pb.PartitionReport(topic=TOPIC, partition=number, arrival_rate=2, in_flight=1)
            for number in numbers
        ]
        report = pb.SidecarReport(group_id=group, sidecar=sidecar, member=member, partitions=partitions)
        self.dashboard.add_report(report)

    def _describe(self, group: str, state: str, generation: int, assignment: Assignment, reason: str) -> None:
        members = [
            DescribedMember(
                f"{name}-id",
                name,
                frozenset(Partition(TOPIC, number) for number in numbers),
                host="127.0.0.1",
            )
            for name, numbers in assignment.items()
        ]
        found = Description(group, state, generation, "cooperative-sticky", members, reason)
        self.dashboard.update_description(found)


@asynccontextmanager
async def browsing_stage(folder: Path, stage: Stage, fragment: str = "") -> AsyncIterator[Tab]:
    """Serve the stage's page to a browser; the page must not complain about anything."""

    async def refuse(group: str, offsets: object) -> str:
        return f"group {group} is staged"

    address = f"127.0.0.1:{free_port()}"
    page = Page(stage.dashboard, lambda workload, replicas: "", refuse)
    async with (
        serve_page(page, address),
        browsing(folder, f"http://{address}/{fragment}") as tab,
    ):
        await tab.until("document.querySelector('[data-group]') !== null", WITHIN_S)
        yield tab
        assert tab.errors == [], tab.errors
