"""The interface of a group whose offsets are reset: its members and their orders, its plans, its offsets. Implemented by the shells."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from rota_operator.offset_resets.sources import OffsetSource
from rota_operator.overview.assignment import Partition
from rota_operator.overview.reported_group import MEMBER_STATES
from rota_operator.overview.view import OwnedPartitions
from rota_operator.resets.plan import Plan
from rota_proto.fleet.v1 import fleet_pb2 as pb


class Members(NamedTuple):
    """The sidecars of a group, by the names of their pods or replicas."""

    # Connected, with a live report, which says that it is suspended.
    suspended: frozenset[str]
    # Connected, and reading.
    reading: frozenset[str]
    # Members, or connected, without a live report of a connected sidecar: their state is not known.
    unknown: frozenset[str]

    @property
    def exist(self) -> bool:
        """True if the group has, or may have, members."""
        return bool(self.suspended or self.reading or self.unknown)


class ResetGroup(Protocol):
    """Group as it is known now; `name` is that of its ConsumerGroup, of which plans have their names."""

    @property
    def name(self) -> str:
        """The name of the ConsumerGroup."""
        ...

    @property
    def group_id(self) -> str:
        """The id of the group."""
        ...

    def members(self) -> Members | None:
        """Return the members; None: the group is not watched, or not described."""
        ...

    def owned(self) -> Mapping[str, OwnedPartitions]:
        """Return the partitions and the generation of each sidecar, by its live report."""
        ...

    async def order(self, member: str, order: pb.SidecarOrder, within_s: float) -> str:
        """Send an order and wait for its answer; returns the error, or an empty string."""
        ...

    async def settings_suspend(self) -> bool | None:
        """Return whether the settings that sidecars read when they start suspend the group; None: there are none."""
        ...

    def source(self) -> AbstractAsyncContextManager[OffsetSource]:
        """Open a source of the group's offsets. Raises Unavailable."""
        ...

    async def read_plan(self, name: str, plan_hash: str = "") -> Plan:
        """Read a plan of this group; with `plan_hash`, the one of this hash. Raises ResetRefused."""
        ...

    async def write_plan(self, name: str, plan: Plan) -> None:
        """Write a plan. Raises ResetRefused if it cannot be written under this name."""
        ...


def members_of(
    reports: Mapping[str, pb.SidecarReport], connected: frozenset[str], described: frozenset[str]
) -> Members:
    """Return the members by live reports, connected sidecars, and client ids that the engine describes."""
    live = {name: each for name, each in reports.items() if name in connected}
    suspended = frozenset(name for name, each in live.items() if each.member.suspended)
    unknown = (described | connected | reports.keys()) - live.keys()
    return Members(suspended, frozenset(live) - suspended, frozenset(unknown))


def owned_in(reports: Mapping[str, pb.SidecarReport]) -> Mapping[str, OwnedPartitions]:
    """Return the partitions and the generation of each member, by its report."""
    return {
        name: OwnedPartitions(
            report.member.generation_id,
            frozenset(Partition(each.topic, each.partition) for each in report.partitions),
        )
        for name, report in reports.items()
        if report.member.state in MEMBER_STATES
    }
