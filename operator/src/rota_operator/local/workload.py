"""One workload while it runs: its replicas, how often which was started again, and what is shown of it."""

from collections import Counter
from collections.abc import Callable

from rota_operator.local.commands import policy_of, replica_name
from rota_operator.local.processes import Command, Processes, ReplicaEvent
from rota_operator.manifests.resources import ConsumerGroup, Workload
from rota_operator.overview.view import ReplicaView, WorkloadView
from rota_operator.replicas.events import ProcessRole, Restarting
from rota_operator.replicas.replica_set import NotRunning, ReplicaSet, Running

# Each is two processes on this machine.
REPLICAS_MAX = 100


class LocalWorkload:
    """To be made and used on a running loop."""

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
        self.processes = Processes(ReplicaSet(policy_of(workload, group)), command, self._replica_event)

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
        return self._desired

    def start(self) -> None:
        """As many as its manifests say."""
        self.processes.scale(self._desired)

    def scale(self, replicas: int) -> None:
        """So many from now on."""
        self._desired = replicas
        self.processes.scale(replicas)

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
        )

    def _replica_event(self, event: ReplicaEvent) -> None:
        if isinstance(event, Restarting):
            self._restarts[event.replica] += 1
        self._on_event(self, event)
