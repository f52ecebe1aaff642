"""Entry point of this core: the state of all groups. Times are wall-clock milliseconds, passed in by the caller."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import Description
from rota_operator.overview.group import FULL_ACCESS, EngineAccess, GroupState
from rota_operator.overview.offsets import OffsetChange, PartitionOffsets
from rota_operator.overview.view import (
    EventKind,
    GroupView,
    HistoryEvent,
    View,
    WorkloadView,
)
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport


class Overview:
    """
    State of all groups, by a key that the caller chooses; inputs about other groups are ignored.

    The local runner has one coordinator and keys groups by their ids. In a cluster two groups of one id may be on different
    coordinators: the key is the ConsumerGroup's namespace and name.
    """

    def __init__(self, coordinator: str, groups: Sequence[tuple[str, str]] = ()) -> None:
        """`groups` are ids and names of groups whose key is their id."""
        self._coordinator = coordinator
        self._groups = {group_id: GroupState(group_id, name) for group_id, name in groups}

    def add_group(self, key: str, group_id: str, name: str, engine: EngineAccess = FULL_ACCESS) -> None:
        """Add a group of which nothing is known so far; replaces the one of this key."""
        self._groups[key] = GroupState(group_id, name, engine)

    def remove_group(self, key: str) -> None:
        """Forget a group and its history."""
        self._groups.pop(key, None)

    def add_report(self, report: SidecarReport, now_ms: int, key: str | None = None) -> bool:
        """
        Add a report of a sidecar of the group `key`, as its token proves it; None: of the group that it names.

        Returns whether it says anything new apart from numbers and times.
        """
        group = self._groups.get(report.group_id if key is None else key)
        return group is not None and group.add_report(report, now_ms)

    def update_description(self, found: Description, now_ms: int, key: str | None = None) -> None:
        """Replace the engine's description of a group; the key is the described id unless it is given."""
        if (group := self._groups.get(found.group_id if key is None else key)) is not None:
            group.update_description(found, now_ms)

    def update_offsets(
        self, key: str, found: Mapping[Partition, PartitionOffsets], now_ms: int
    ) -> OffsetChange:
        """
        Replace the engine's offsets of a group; partitions that it does not list any more are forgotten.

        Returns what has changed.
        """
        group = self._groups.get(key)
        return OffsetChange.NOTHING if group is None else group.update_offsets(found, now_ms)

    def update_queried(
        self,
        key: str,
        found: Mapping[Partition, PartitionOffsets],
        missing: Collection[Partition],
        now_ms: int,
    ) -> None:
        """Add offsets that a sidecar looked up for the operator, and forget partitions that it did not find."""
        if (group := self._groups.get(key)) is not None:
            group.update_queried(found, missing, now_ms)

    def owned(self, key: str) -> frozenset[Partition]:
        """Partitions of a group that have an owner."""
        group = self._groups.get(key)
        return frozenset() if group is None else group.owned

    def unowned(self, key: str, now_ms: int) -> frozenset[Partition]:
        """Partitions of a group without an owner whose offsets only a sidecar can look up."""
        group = self._groups.get(key)
        return frozenset() if group is None else group.unowned(now_ms)

    def coordinator_lost(self, key: str) -> None:
        """Discard the description of a group."""
        if (group := self._groups.get(key)) is not None:
            group.coordinator_lost()

    def record_event(self, key: str | None, kind: EventKind, message: str, now_ms: int) -> None:
        """Append an event to the group's history; no-op without a group."""
        if key is not None and (group := self._groups.get(key)) is not None:
            group.history.add(HistoryEvent(now_ms, kind, message))

    def remove_replica(self, key: str | None, replica: str) -> None:
        """Discard the reports of a replica that has stopped."""
        if key is not None and (group := self._groups.get(key)) is not None:
            group.remove_replica(replica)

    def reports(self, key: str, now_ms: int) -> Mapping[str, SidecarReport]:
        """Live reports of a group's sidecars, by sidecar name."""
        group = self._groups.get(key)
        return {} if group is None else group.live_reports(now_ms)

    def client_ids(self, key: str) -> frozenset[str] | None:
        """Client ids of a group's members, by the engine's description; None: there is none."""
        group = self._groups.get(key)
        return None if group is None else group.client_ids

    def group(self, key: str, workloads: Sequence[WorkloadView], now_ms: int) -> GroupView | None:
        """Snapshot of one group at `now_ms`; None: it is not in here. `workloads` name their group by its key."""
        group = self._groups.get(key)
        replicas = [
            each.name for workload in workloads if workload.group_id == key for each in workload.replicas
        ]
        return None if group is None else group.view(now_ms, replicas)

    @property
    def keys(self) -> Collection[str]:
        """Keys of all groups."""
        return self._groups.keys()

    def view(self, workloads: Sequence[WorkloadView], now_ms: int) -> View:
        """Snapshot of all groups and the given workloads, which name their group by its key, at `now_ms`."""
        replicas: dict[str | None, list[str]] = defaultdict(list)
        for workload in workloads:
            replicas[workload.group_id] += [replica.name for replica in workload.replicas]
        return View(
            at_ms=now_ms,
            coordinator=self._coordinator,
            groups=tuple(group.view(now_ms, replicas[key]) for key, group in self._groups.items()),
            workloads=tuple(workloads),
        )
