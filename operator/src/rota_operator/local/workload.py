"""Workload that runs: its replicas, their restarts, and its view."""

from collections import Counter
from collections.abc import Callable, Sequence

from rota_operator.local.commands import policy_of, replica_name
from rota_operator.local.processes import Command, Processes, ReplicaEvent
from rota_operator.manifests.resources import ConsumerGroup, Workload
from rota_operator.overview.view import ReplicaView, ScaleDecisionView, WorkloadView
from rota_operator.replicas.events import ProcessRole, Restarting
from rota_operator.replicas.replica_set import NotRunning, ReplicaSet, Running

# Each replica is two processes on this machine.
REPLICAS_MAX = 100


class LocalWorkload:
    """A workload whose replicas run as local processes; create on a running event loop."""

    def __init__(
        self,
        workload: Workload,
        group: ConsumerGroup | None,
        command: Callable[[int, ProcessRole], Command],
        on_event: Callable[["LocalWorkload", ReplicaEvent], None],
    ) -> None:
        self._workload = workload
        self._group = group
        self._desired = workload.spec.replicas
        if group is not None and group.spec.replicas is not None:
            self._desired = group.spec.replicas
        self._restarts: Counter[int] = Counter()
        self._on_event = on_event
        # The autoscaler's last decisions, newest first.
        self.decisions: Sequence[ScaleDecisionView] = ()
        self.processes = Processes(ReplicaSet(policy_of(workload, group)), command, self._replica_event)

    @property
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return "/".join(self._workload.name)

    @property
    def short_name(self) -> str:
        """Name without the namespace."""
        return self._workload.name.name

    @property
    def group(self) -> ConsumerGroup | None:
        """ConsumerGroup of the workload, if any."""
        return self._group

    @property
    def group_id(self) -> str | None:
        """Group that the workload consumes for, if any."""
        return None if self._group is None else self._group.group_id

    @property
    def wanted(self) -> int:
        """Desired number of replicas."""
        return self._desired

    def start(self) -> None:
        """Start the number of replicas that the manifests set."""
        self.processes.scale(self._desired)

    def scale(self, replicas: int) -> None:
        """Set the desired number of replicas."""
        self._desired = replicas
        self.processes.scale(replicas)

    def kill(self, number: int) -> None:
        """Kill all processes of a replica, as a crash would."""
        self.processes.kill(number)

    def restarts_of(self, number: int) -> int:
        """Number of restarted processes of a replica."""
        return self._restarts[number]

    def replica(self, number: int) -> str:
        """Name of a replica."""
        return replica_name(self._workload, number)

    def view(self) -> WorkloadView:
        """Snapshot for page and table."""
        found = self.processes.replicas.replicas
        replicas = tuple(
            ReplicaView(
                name=self.replica(number),
                app=type(parts[ProcessRole.APP]).__name__,
                sidecar=None if self._group is None else type(parts[ProcessRole.SIDECAR]).__name__,
                restarts=self._restarts[number],
            )
            for number, parts in found.items()
        )
        return WorkloadView(
            namespace=self._workload.name.namespace,
            name=self.short_name,
            kind=self._workload.kind,
            group_id=self.group_id,
            wanted=self._desired,
            running=sum(
                all(isinstance(life, Running | NotRunning) for life in parts.values())
                and isinstance(parts[ProcessRole.APP], Running)
                for parts in found.values()
            ),
            restarts=self._restarts.total(),
            replicas=replicas,
            decisions=tuple(self.decisions),
        )

    def _replica_event(self, event: ReplicaEvent) -> None:
        if isinstance(event, Restarting):
            self._restarts[event.replica] += 1
        self._on_event(self, event)
