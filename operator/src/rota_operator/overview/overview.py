"""Entry point of this core: the state of all groups. Times are wall-clock milliseconds, passed in by the caller."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import Description
from rota_operator.overview.group import GroupState
from rota_operator.overview.offsets import PartitionOffsets
from rota_operator.overview.view import EventKind, HistoryEvent, OwnedPartitions, View, WorkloadView
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport


class Overview:
    """State of a fixed set of groups; inputs about other groups are ignored."""

    def __init__(self, coordinator: str, groups: Sequence[tuple[str, str]]) -> None:
        self._coordinator = coordinator
        self._groups = {group_id: GroupState(group_id, name) for group_id, name in groups}

    def add_report(self, report: SidecarReport, now_ms: int) -> None:
        """Add a sidecar's report."""
        if (group := self._groups.get(report.group_id)) is not None:
            group.add_report(report, now_ms)

    def update_description(self, found: Description, now_ms: int) -> None:
        """Replace the engine's description of a group."""
        if (group := self._groups.get(found.group_id)) is not None:
            group.update_description(found, now_ms)

    def update_offsets(self, group_id: str, found: Mapping[Partition, PartitionOffsets], now_ms: int) -> None:
        """Replace the engine's offsets of a group."""
        if (group := self._groups.get(group_id)) is not None:
            group.update_offsets(found, now_ms)

    def owned(self, group_id: str) -> frozenset[Partition]:
        """Partitions of a group that have an owner."""
        group = self._groups.get(group_id)
        return frozenset() if group is None else group.owned

    def coordinator_lost(self, group_id: str) -> None:
        """Discard the description of a group."""
        if (group := self._groups.get(group_id)) is not None:
            group.coordinator_lost()

    def record_event(self, group_id: str | None, kind: EventKind, message: str, now_ms: int) -> None:
        """Append an event to the group's history; no-op without a group."""
        if group_id is not None and (group := self._groups.get(group_id)) is not None:
            group.history.add(HistoryEvent(now_ms, kind, message))

    def remove_replica(self, group_id: str | None, replica: str) -> None:
        """Discard the reports of a replica that has stopped."""
        if group_id is not None and (group := self._groups.get(group_id)) is not None:
            group.remove_replica(replica)

    def owned_partitions(self, group_id: str, now_ms: int) -> Mapping[str, OwnedPartitions]:
        """Partitions and generation that each sidecar of a group reports, by sidecar name."""
        group = self._groups.get(group_id)
        return {} if group is None else group.owned_partitions(now_ms)

    def view(self, workloads: Sequence[WorkloadView], now_ms: int) -> View:
        """Snapshot of all groups and the given workloads at `now_ms`."""
        replicas: dict[str | None, list[str]] = defaultdict(list)
        for workload in workloads:
            replicas[workload.group_id] += [replica.name for replica in workload.replicas]
        return View(
            at_ms=now_ms,
            coordinator=self._coordinator,
            groups=tuple(group.view(now_ms, replicas[group.group_id]) for group in self._groups.values()),
            workloads=tuple(workloads),
        )
