"""State machine of a workload's replicas, numbered from 0; the highest numbers are stopped first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from rota_operator.replicas.events import (
    Action,
    DesiredReplicas,
    Drain,
    Drained,
    DrainFailed,
    Event,
    Exited,
    ForceStop,
    Kill,
    ProcessRole,
    ReplicaPolicy,
    ReplicaStopped,
    Restarting,
    Start,
    Started,
    Terminate,
    Tick,
)


@dataclass(frozen=True, slots=True)
class NotRunning:
    """Not running, and not to be started."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting for the restart at `at_ms`."""

    at_ms: int
    failures: int


@dataclass(frozen=True, slots=True)
class Starting:
    """Start requested."""

    run: int
    failures: int


@dataclass(frozen=True, slots=True)
class Running:
    """Running since `since_ms`."""

    run: int
    failures: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Terminating:
    """SIGTERM sent; killed at `kill_ms`, or already killed if that is None."""

    run: int
    kill_ms: int | None


ProcessState = NotRunning | Waiting | Starting | Running | Terminating


@dataclass(frozen=True, slots=True)
class Draining:
    """The sidecar drains, for at most until `until_ms`."""

    run: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class DrainFinished:
    """The drain is over, or was not needed."""


@dataclass(slots=True)
class Replica:
    """State of one replica."""

    number: int
    parts: dict[ProcessRole, ProcessState] = field(
        default_factory=lambda: dict.fromkeys(ProcessRole, NotRunning())
    )
    # Deadline after which its last process is killed; None: the replica is to stay.
    stop_deadline_ms: int | None = None
    # None: no drain was requested yet.
    drain: Draining | DrainFinished | None = None


class ReplicaSet:
    """
    The replicas of one workload.

    Invariant: an application is started only while its sidecar runs, and its sidecar is stopped only after it.
    """

    def __init__(self, policy: ReplicaPolicy) -> None:
        self._policy = policy
        self._desired = 0
        self._replicas: dict[int, Replica] = {}
        # Replica and role of each process.
        self._runs: dict[int, tuple[Replica, ProcessRole]] = {}
        self._last_run = 0
        self._now_ms = 0
        self._actions: list[Action] = []

    @property
    def replicas(self) -> Mapping[int, Mapping[ProcessRole, ProcessState]]:
        """Process states by replica number and role."""
        return {number: dict(replica.parts) for number, replica in sorted(self._replicas.items())}

    @property
    def next_tick_ms(self) -> int | None:
        """Time of the next deadline; in the past: due now; None: no deadline."""
        replicas = self._replicas.values()
        times = [_due_ms(state) for replica in replicas for state in replica.parts.values()]
        times += [replica.drain.until_ms for replica in replicas if isinstance(replica.drain, Draining)]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def step(self, event: Event, now_ms: int) -> Sequence[Action]:
        """Apply an event and return the actions to perform, in order. `now_ms` never decreases."""
        self._now_ms, self._actions = now_ms, []
        match event:
            case DesiredReplicas(count):
                self._desired = count
            case Started(run):
                self._started(run)
            case Exited(run, code):
                self._exited(run, code)
            case Drained(run, reason):
                self._drained(run, reason)
            case ForceStop():
                self._force_stop()
            case Tick():
                self._tick()
            case _:
                assert_never(event)
        self._reconcile()
        return self._actions

    # Handling of events

    def _started(self, run: int) -> None:
        replica, part = self._runs.get(run, (None, None))
        if replica is None or part is None:
            return
        state = replica.parts[part]
        if isinstance(state, Starting):
            replica.parts[part] = Running(run, state.failures, self._now_ms)

    def _drained(self, run: int, reason: str) -> None:
        replica, _ = self._runs.get(run, (None, None))
        if replica is not None and isinstance(replica.drain, Draining) and replica.drain.run == run:
            self._finish_drain(replica, reason)

    def _finish_drain(self, replica: Replica, reason: str) -> None:
        replica.drain = DrainFinished()
        if reason:
            self._actions.append(DrainFailed(replica.number, reason))

    def _exited(self, run: int, code: int) -> None:
        replica, part = self._runs.pop(run, (None, None))
        if replica is None or part is None:
            return
        if isinstance(replica.drain, Draining):
            self._finish_drain(replica, f"{part.value} exited with code {code}")
        match replica.parts[part]:
            case Starting(failures=failures):
                replica.parts[part] = self._restart_later(replica, part, code, failures)
            case Running(failures=failures, since_ms=since_ms):
                was_well = self._now_ms - since_ms >= self._policy.backoff_reset_ms
                replica.parts[part] = self._restart_later(replica, part, code, 0 if was_well else failures)
            case _:
                replica.parts[part] = NotRunning()

    def _restart_later(self, replica: Replica, part: ProcessRole, code: int, failures: int) -> ProcessState:
        if replica.stop_deadline_ms is not None:
            return NotRunning()
        wait_ms = min(self._policy.backoff_ms << min(failures, 20), self._policy.backoff_max_ms)
        at_ms = self._now_ms + wait_ms
        self._actions.append(Restarting(replica.number, part, code, at_ms))
        return Waiting(at_ms, failures + 1)

    def _force_stop(self) -> None:
        for replica in self._replicas.values():
            if replica.stop_deadline_ms is None:
                continue
            if isinstance(replica.drain, Draining):
                self._finish_drain(replica, "shutdown was forced")
            replica.stop_deadline_ms = min(
                replica.stop_deadline_ms, self._now_ms + self._policy.forced_grace_ms
            )
            for part, state in replica.parts.items():
                if isinstance(state, Terminating) and state.kill_ms is not None:
                    replica.parts[part] = Terminating(state.run, min(state.kill_ms, replica.stop_deadline_ms))

    def _tick(self) -> None:
        for replica in self._replicas.values():
            if isinstance(replica.drain, Draining) and replica.drain.until_ms <= self._now_ms:
                self._finish_drain(replica, f"records still in flight after {self._policy.drain_ms} ms")
            for part, state in replica.parts.items():
                due_ms = _due_ms(state)
                if due_ms is None or due_ms > self._now_ms:
                    continue
                if isinstance(state, Waiting):
                    self._start(replica, part, state.failures)
                elif isinstance(state, Terminating):
                    self._actions.append(Kill(state.run))
                    replica.parts[part] = Terminating(state.run, None)

    # Computation of actions

    def _reconcile(self) -> None:
        for number in sorted(self._replicas, reverse=True):
            replica = self._replicas[number]
            if number >= self._desired and replica.stop_deadline_ms is None:
                replica.stop_deadline_ms = self._now_ms + self._policy.grace_ms
            if replica.stop_deadline_ms is not None:
                self._stop_in_order(replica, replica.stop_deadline_ms)
        for number in range(self._desired):
            if number not in self._replicas:
                self._replicas[number] = Replica(number)
            self._start_missing(self._replicas[number])

    def _start_missing(self, replica: Replica) -> None:
        """Start the sidecar, then the application once the sidecar runs; later each restarts on its own."""
        if replica.stop_deadline_ms is not None:
            return
        sidecar, app = replica.parts[ProcessRole.SIDECAR], replica.parts[ProcessRole.APP]
        if self._policy.has_sidecar and isinstance(sidecar, NotRunning):
            self._start(replica, ProcessRole.SIDECAR, 0)
        elif isinstance(app, NotRunning) and (isinstance(sidecar, Running) or not self._policy.has_sidecar):
            self._start(replica, ProcessRole.APP, 0)

    def _stop_in_order(self, replica: Replica, stop_deadline_ms: int) -> None:
        """Stop a replica: drain, then the application, then the sidecar."""
        if self._is_draining(replica):
            return
        for part in (ProcessRole.APP, ProcessRole.SIDECAR):
            match replica.parts[part]:
                case Starting(run=run) | Running(run=run):
                    self._actions.append(Terminate(run))
                    replica.parts[part] = Terminating(run, stop_deadline_ms)
                case Waiting():
                    replica.parts[part] = NotRunning()
                case NotRunning() | Terminating():
                    pass
            if not isinstance(replica.parts[part], NotRunning):
                return
        del self._replicas[replica.number]
        self._actions.append(ReplicaStopped(replica.number))

    def _is_draining(self, replica: Replica) -> bool:
        """True while a drain is in progress; starts one if both processes run, because otherwise nothing is in flight."""
        if replica.drain is None:
            app, sidecar = replica.parts[ProcessRole.APP], replica.parts[ProcessRole.SIDECAR]
            if isinstance(sidecar, Running) and isinstance(app, Starting | Running):
                replica.drain = Draining(sidecar.run, self._now_ms + self._policy.drain_ms)
                self._actions.append(Drain(sidecar.run))
            else:
                replica.drain = DrainFinished()
        return isinstance(replica.drain, Draining)

    def _start(self, replica: Replica, part: ProcessRole, failures: int) -> None:
        self._last_run += 1
        self._runs[self._last_run] = replica, part
        replica.parts[part] = Starting(self._last_run, failures)
        self._actions.append(Start(self._last_run, replica.number, part))


def _due_ms(state: ProcessState) -> int | None:
    match state:
        case Waiting(at_ms=at_ms):
            return at_ms
        case Terminating(kill_ms=kill_ms):
            return kill_ms
        case NotRunning() | Starting() | Running():
            return None
