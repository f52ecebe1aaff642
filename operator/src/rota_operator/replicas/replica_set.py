"""A set of replicas, numbered from 0 on; those with the highest numbers go first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from rota_operator.replicas.events import (
    Action,
    Again,
    Drain,
    Drained,
    Event,
    Exited,
    Gone,
    Hurry,
    Kill,
    Part,
    Rules,
    Start,
    Started,
    Terminate,
    Tick,
    Undrained,
    Wanted,
)


@dataclass(frozen=True, slots=True)
class Down:
    """It does not run, and is not to."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """It is started again then."""

    at_ms: int
    failures: int


@dataclass(frozen=True, slots=True)
class Starting:
    """Its process is being started."""

    run: int
    failures: int


@dataclass(frozen=True, slots=True)
class Up:
    """It runs."""

    run: int
    failures: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Ending:
    """It was asked to end; None: and was killed."""

    run: int
    kill_ms: int | None


Life = Down | Waiting | Starting | Up | Ending


@dataclass(frozen=True, slots=True)
class Draining:
    """Its sidecar was asked to let the application finish, and may take until then."""

    run: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is waited for any more before its processes end."""


@dataclass(slots=True)
class Replica:
    """One."""

    number: int
    parts: dict[Part, Life] = field(default_factory=lambda: dict.fromkeys(Part, Down()))
    # When the last of it is killed; None: it is to stay.
    ends_ms: int | None = None
    # None: nobody was asked yet.
    drain: Draining | Finished | None = None


class ReplicaSet:
    """The replicas of one workload."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._wanted = 0
        self._replicas: dict[int, Replica] = {}
        # Where each process belongs.
        self._runs: dict[int, tuple[Replica, Part]] = {}
        self._last_run = 0
        self._now_ms = 0
        self._actions: list[Action] = []

    @property
    def replicas(self) -> Mapping[int, Mapping[Part, Life]]:
        """All that there are, by their numbers."""
        return {number: dict(replica.parts) for number, replica in sorted(self._replicas.items())}

    @property
    def alarm(self) -> int | None:
        """When it wants a Tick; in the past: now."""
        replicas = self._replicas.values()
        times = [_due_ms(life) for replica in replicas for life in replica.parts.values()]
        times += [replica.drain.until_ms for replica in replicas if isinstance(replica.drain, Draining)]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def step(self, event: Event, now_ms: int) -> Sequence[Action]:
        """What is to be done. `now_ms` never falls."""
        self._now_ms, self._actions = now_ms, []
        match event:
            case Wanted(count):
                self._wanted = count
            case Started(run):
                self._started(run)
            case Exited(run, code):
                self._exited(run, code)
            case Drained(run, wrong):
                self._drained(run, wrong)
            case Hurry():
                self._hurry()
            case Tick():
                self._tick()
            case _:
                assert_never(event)
        self._go_on()
        return self._actions

    # What happened

    def _started(self, run: int) -> None:
        replica, part = self._runs.get(run, (None, None))
        if replica is None or part is None:
            return
        life = replica.parts[part]
        if isinstance(life, Starting):
            replica.parts[part] = Up(run, life.failures, self._now_ms)

    def _drained(self, run: int, wrong: str) -> None:
        replica, _ = self._runs.get(run, (None, None))
        if replica is not None and isinstance(replica.drain, Draining) and replica.drain.run == run:
            self._finish(replica, wrong)

    def _finish(self, replica: Replica, wrong: str) -> None:
        replica.drain = Finished()
        if wrong:
            self._actions.append(Undrained(replica.number, wrong))

    def _exited(self, run: int, code: int) -> None:
        replica, part = self._runs.pop(run, (None, None))
        if replica is None or part is None:
            return
        if isinstance(replica.drain, Draining):
            self._finish(replica, f"{part.value} exited with code {code}")
        match replica.parts[part]:
            case Starting(failures=failures):
                replica.parts[part] = self._again(replica, part, code, failures)
            case Up(failures=failures, since_ms=since_ms):
                was_well = self._now_ms - since_ms >= self._rules.well_after_ms
                replica.parts[part] = self._again(replica, part, code, 0 if was_well else failures)
            case _:
                replica.parts[part] = Down()

    def _again(self, replica: Replica, part: Part, code: int, failures: int) -> Life:
        if replica.ends_ms is not None:
            return Down()
        wait_ms = min(self._rules.backoff_ms << min(failures, 20), self._rules.backoff_max_ms)
        at_ms = self._now_ms + wait_ms
        self._actions.append(Again(replica.number, part, code, at_ms))
        return Waiting(at_ms, failures + 1)

    def _hurry(self) -> None:
        for replica in self._replicas.values():
            if replica.ends_ms is None:
                continue
            if isinstance(replica.drain, Draining):
                self._finish(replica, "shutdown was forced")
            replica.ends_ms = min(replica.ends_ms, self._now_ms + self._rules.hurry_ms)
            for part, life in replica.parts.items():
                if isinstance(life, Ending) and life.kill_ms is not None:
                    replica.parts[part] = Ending(life.run, min(life.kill_ms, replica.ends_ms))

    def _tick(self) -> None:
        for replica in self._replicas.values():
            if isinstance(replica.drain, Draining) and replica.drain.until_ms <= self._now_ms:
                self._finish(replica, f"records still in flight after {self._rules.drain_ms} ms")
            for part, life in replica.parts.items():
                due_ms = _due_ms(life)
                if due_ms is None or due_ms > self._now_ms:
                    continue
                if isinstance(life, Waiting):
                    self._start(replica, part, life.failures)
                elif isinstance(life, Ending):
                    self._actions.append(Kill(life.run))
                    replica.parts[part] = Ending(life.run, None)

    # What follows

    def _go_on(self) -> None:
        for number in sorted(self._replicas, reverse=True):
            replica = self._replicas[number]
            if number >= self._wanted and replica.ends_ms is None:
                replica.ends_ms = self._now_ms + self._rules.grace_ms
            if replica.ends_ms is not None:
                self._end(replica, replica.ends_ms)
        for number in range(self._wanted):
            if number not in self._replicas:
                self._replicas[number] = Replica(number)
            self._begin(self._replicas[number])

    def _begin(self, replica: Replica) -> None:
        """The application comes when its sidecar has come, once; later each is started again for itself."""
        if replica.ends_ms is not None:
            return
        sidecar, app = replica.parts[Part.SIDECAR], replica.parts[Part.APP]
        if self._rules.has_sidecar and isinstance(sidecar, Down):
            self._start(replica, Part.SIDECAR, 0)
        elif isinstance(app, Down) and (isinstance(sidecar, Up) or not self._rules.has_sidecar):
            self._start(replica, Part.APP, 0)

    def _end(self, replica: Replica, ends_ms: int) -> None:
        """Nothing in hand, then no application, then no sidecar: each still has to say something to the next."""
        if self._drains(replica):
            return
        for part in (Part.APP, Part.SIDECAR):
            match replica.parts[part]:
                case Starting(run=run) | Up(run=run):
                    self._actions.append(Terminate(run))
                    replica.parts[part] = Ending(run, ends_ms)
                case Waiting():
                    replica.parts[part] = Down()
                case Down() | Ending():
                    pass
            if not isinstance(replica.parts[part], Down):
                return
        del self._replicas[replica.number]
        self._actions.append(Gone(replica.number))

    def _drains(self, replica: Replica) -> bool:
        """Whether that is to be waited for; where one of the two does not run nothing is in hand."""
        if replica.drain is None:
            app, sidecar = replica.parts[Part.APP], replica.parts[Part.SIDECAR]
            if isinstance(sidecar, Up) and isinstance(app, Starting | Up):
                replica.drain = Draining(sidecar.run, self._now_ms + self._rules.drain_ms)
                self._actions.append(Drain(sidecar.run))
            else:
                replica.drain = Finished()
        return isinstance(replica.drain, Draining)

    def _start(self, replica: Replica, part: Part, failures: int) -> None:
        self._last_run += 1
        self._runs[self._last_run] = replica, part
        replica.parts[part] = Starting(self._last_run, failures)
        self._actions.append(Start(self._last_run, replica.number, part))


def _due_ms(life: Life) -> int | None:
    match life:
        case Waiting(at_ms=at_ms):
            return at_ms
        case Ending(kill_ms=kill_ms):
            return kill_ms
        case Down() | Starting() | Up():
            return None
