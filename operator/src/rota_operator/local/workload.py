"""One workload while it runs: its replicas, how often which was started again, and what is shown of it."""

from collections import Counter
from collections.abc import Callable

from rota_operator.local.commands import replica_name, rules_of
from rota_operator.local.processes import Command, Processes, Told
from rota_operator.manifests.resources import Group, Workload
from rota_operator.overview.view import ReplicaView, WorkloadView
from rota_operator.replicas.events import Again, Part
from rota_operator.replicas.replica_set import Down, ReplicaSet, Up

# Each is two processes on this machine.
REPLICAS_MAX = 100


class RunningWorkload:
    """To be made and used on a running loop."""

    def __init__(
        self,
        workload: Workload,
        group: Group | None,
        command: Callable[[int, Part], Command],
        tell: Callable[["RunningWorkload", Told], None],
    ) -> None:
        self._workload = workload
        self._group = group
        self._wanted = workload.spec.replicas
        if group is not None and group.spec.replicas is not None:
            self._wanted = group.spec.replicas
        self._restarts: Counter[int] = Counter()
        self._tell = tell
        self.processes = Processes(ReplicaSet(rules_of(workload, group)), command, self._told)

    @property
    def name(self) -> str:
        """As namespace/name."""
        return "/".join(self._workload.name)

    @property
    def short_name(self) -> str:
        """Without its namespace."""
        return self._workload.name.name

    @property
    def group_id(self) -> str | None:
        """Of the group that it consumes for."""
        return None if self._group is None else self._group.group_id

    @property
    def wanted(self) -> int:
        """How many replicas there are to be."""
        return self._wanted

    def start(self) -> None:
        """As many as its manifests say."""
        self.processes.want(self._wanted)

    def scale(self, replicas: int) -> None:
        """So many from now on."""
        self._wanted = replicas
        self.processes.want(replicas)

    def kill(self, number: int) -> None:
        """A replica crashes, with its sidecar."""
        self.processes.kill(number)

    def restarts_of(self, number: int) -> int:
        """How often processes of this replica were started again."""
        return self._restarts[number]

    def replica(self, number: int) -> str:
        """Its name."""
        return replica_name(self._workload, number)

    def view(self) -> WorkloadView:
        """What is shown of it."""
        found = self.processes.replicas.replicas
        replicas = tuple(
            ReplicaView(
                name=self.replica(number),
                app=type(parts[Part.APP]).__name__,
                sidecar=None if self._group is None else type(parts[Part.SIDECAR]).__name__,
                restarts=self._restarts[number],
            )
            for number, parts in found.items()
        )
        return WorkloadView(
            namespace=self._workload.name.namespace,
            name=self.short_name,
            kind=self._workload.kind,
            group_id=self.group_id,
            wanted=self._wanted,
            running=sum(
                all(isinstance(life, Up | Down) for life in parts.values())
                and isinstance(parts[Part.APP], Up)
                for parts in found.values()
            ),
            restarts=self._restarts.total(),
            replicas=replicas,
        )

    def _told(self, told: Told) -> None:
        if isinstance(told, Again):
            self._restarts[told.replica] += 1
        self._tell(self, told)
