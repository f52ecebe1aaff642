"""All groups and workloads that somebody looks after: the door of this core."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rota_operator.overview.group import Group
from rota_operator.overview.view import Holding, Kind, Moment, View, WorkloadView
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupResponse
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport


class Overview:
    """Hears what happens, with the time of day at which it does."""

    def __init__(self, coordinator: str, groups: Sequence[tuple[str, str]]) -> None:
        self._coordinator = coordinator
        self._groups = {group_id: Group(group_id, name) for group_id, name in groups}

    def hear_report(self, report: SidecarReport, now_ms: int) -> None:
        """A sidecar reports."""
        if (group := self._groups.get(report.group_id)) is not None:
            group.hear_report(report, now_ms)

    def hear_description(self, told: WatchGroupResponse, now_ms: int) -> None:
        """A group's coordinator describes it."""
        if (group := self._groups.get(told.group.group_id)) is not None:
            group.hear_description(told, now_ms)

    def coordinator_is_away(self, group_id: str) -> None:
        """Nobody describes this group for now."""
        if (group := self._groups.get(group_id)) is not None:
            group.coordinator_is_away()

    def happened(self, group_id: str | None, kind: Kind, sentence: str, now_ms: int) -> None:
        """Something to be remembered with the group; of no group: nowhere."""
        if group_id is not None and (group := self._groups.get(group_id)) is not None:
            group.history.add(Moment(now_ms, kind, sentence))

    def gone(self, group_id: str | None, replica: str) -> None:
        """Nothing of this replica runs any more."""
        if group_id is not None and (group := self._groups.get(group_id)) is not None:
            group.forget(replica)

    def holdings(self, group_id: str, now_ms: int) -> Mapping[str, Holding]:
        """What each sidecar of a group has, and in which generation, as far as it has said so lately."""
        group = self._groups.get(group_id)
        return {} if group is None else group.holdings(now_ms)

    def view(self, workloads: Sequence[WorkloadView], now_ms: int) -> View:
        """Now."""
        replicas: dict[str | None, list[str]] = defaultdict(list)
        for workload in workloads:
            replicas[workload.group_id] += [replica.name for replica in workload.replicas]
        return View(
            at_ms=now_ms,
            coordinator=self._coordinator,
            groups=tuple(group.view(now_ms, replicas[group.group_id]) for group in self._groups.values()),
            workloads=tuple(workloads),
        )
