"""
Drained scale-down, a state machine: the victims drain, then the number of replicas falls, so that no record is repeated.

`ScaleDown.step(event, now_ms)` returns actions. A drain expires by itself; it is ordered again until the number has fallen, so that an
operator that is killed at any step leaves no replica drained for longer than DRAIN_MS.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

# Expiry of one drain order, and when it is renewed.
DRAIN_MS = 30_000
RENEW_MS = 10_000
# A drain that takes longer is given up, as is a change of the number that is not confirmed.
DRAIN_MAX_MS = 120_000
SCALE_MAX_MS = 60_000


class VictimOrder(Enum):
    """Which replicas a workload removes first."""

    # StatefulSets, and replicas on a laptop.
    HIGHEST_ORDINAL = "highest ordinal"
    # Deployments, by the pods' deletion cost.
    FEWEST_PARTITIONS = "fewest partitions"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that may be removed."""

    name: str
    ordinal: int
    partitions: int
    # Number of records in flight; those of an idle replica are done at once.
    in_flight: int = 0


def choose_victims(candidates: Sequence[Candidate], count: int, order: VictimOrder) -> tuple[str, ...]:
    """Return the names of the replicas to remove; those whose leaving moves least, where the workload leaves the choice."""
    if order is VictimOrder.HIGHEST_ORDINAL:
        ranked = sorted(candidates, key=lambda each: -each.ordinal)
    else:
        ranked = sorted(candidates, key=lambda each: (each.partitions, each.in_flight, each.name))
    return tuple(each.name for each in ranked[: max(0, count)])


# ---------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Begin:
    """Event: reduce the number of replicas from `before` to `target` by removing the victims."""

    before: int
    target: int
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrainAnswered:
    """Event: a victim answered a drain order; `problem` is empty if no record is in flight any more."""

    victim: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class VictimEnded:
    """Event: a victim has exited or left the group by itself: nothing of it is in flight."""

    victim: str


@dataclass(frozen=True, slots=True)
class ReplicasObserved:
    """Event: the desired number of replicas is this."""

    replicas: int


@dataclass(frozen=True, slots=True)
class ScaleAnswered:
    """Event: the change of the number was accepted, or rejected with a problem."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class RolloutBegan:
    """Event: the workload replaces its replicas: victims drain for nothing."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: a deadline may have passed."""


Event = Begin | DrainAnswered | VictimEnded | ReplicasObserved | ScaleAnswered | RolloutBegan | Tick

# --------------------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class OrderDrain:
    """Action: order a victim to drain; the order expires after `within_ms`."""

    victim: str
    within_ms: int


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Action: set the number of replicas."""

    replicas: int
    # Replicas that are to go.
    victims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """Action: report the end; `problem` is empty if the number has fallen."""

    before: int
    target: int
    problem: str = ""


Action = OrderDrain | SetReplicas | Finished

# ---------------------------------------------------------------------------------------------- states


@dataclass(frozen=True, slots=True)
class Idle:
    """No scale-down is under way."""


@dataclass(frozen=True, slots=True)
class Draining:
    """Victims finish their records in flight. `waiting` are those that have not answered."""

    plan: Begin
    waiting: frozenset[str]
    renew_ms: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Scaling:
    """Change of the number, once all victims are drained; the drains are renewed until it has changed."""

    plan: Begin
    renew_ms: int
    deadline_ms: int


State = Idle | Draining | Scaling


class ScaleDown:
    """Invariant: outside of Idle, each victim has a drain order that is at most RENEW_MS older than the last tick."""

    def __init__(self) -> None:
        self.state: State = Idle()
        # Victims that have exited; they are sent no order.
        self._ended: frozenset[str] = frozenset()

    @property
    def next_tick_ms(self) -> int | None:
        """Time of the next deadline; None: there is none."""
        match self.state:
            case Idle():
                return None
            case Draining() | Scaling() as state:
                return min(state.renew_ms, state.deadline_ms)

    def step(self, event: Event, now_ms: int) -> Sequence[Action]:
        """Apply an event and return the actions to perform, in order."""
        match self.state:
            case Idle():
                return self._idle(event, now_ms)
            case Draining() as state:
                return self._draining(state, event, now_ms)
            case Scaling() as state:
                return self._scaling(state, event, now_ms)
            case _:
                assert_never(self.state)

    def _idle(self, event: Event, now_ms: int) -> Sequence[Action]:
        if not isinstance(event, Begin):
            return ()
        if not 0 <= event.target < event.before:
            return (Finished(event.before, event.target, "the number of replicas would not fall"),)
        self._ended = frozenset()
        if not event.victims:
            return self._scale(event, now_ms)
        self.state = Draining(event, frozenset(event.victims), now_ms + RENEW_MS, now_ms + DRAIN_MAX_MS)
        return self._orders(event)

    def _draining(self, state: Draining, event: Event, now_ms: int) -> Sequence[Action]:
        match event:
            case Begin():
                return (Finished(event.before, event.target, "another scale-down is under way"),)
            case DrainAnswered(victim, ""):
                return self._drained(state, victim, now_ms)
            case VictimEnded(victim):
                self._ended |= {victim}
                return self._drained(state, victim, now_ms)
            case ReplicasObserved(replicas):
                return self._observed(state.plan, replicas)
            case RolloutBegan():
                return self._end(state.plan, "a rollout has begun")
            case Tick():
                names = ", ".join(sorted(state.waiting))
                return self._tick(state, now_ms, f"records in flight after {DRAIN_MAX_MS // 1000} s: {names}")
            case ScaleAnswered() | DrainAnswered():
                return ()
            case _:
                assert_never(event)

    def _scaling(self, state: Scaling, event: Event, now_ms: int) -> Sequence[Action]:
        match event:
            case Begin():
                return (Finished(event.before, event.target, "another scale-down is under way"),)
            case ScaleAnswered(problem):
                return self._end(state.plan, problem)
            case ReplicasObserved(replicas):
                # The number may have been changed although the answer was lost.
                return self._observed(state.plan, replicas)
            case VictimEnded(victim):
                self._ended |= {victim}
                return ()
            case DrainAnswered() | RolloutBegan():
                return ()
            case Tick():
                return self._tick(state, now_ms, f"not confirmed within {SCALE_MAX_MS // 1000} s")
            case _:
                assert_never(event)

    def _tick(self, state: Draining | Scaling, now_ms: int, problem: str) -> Sequence[Action]:
        """Give up at the deadline, and renew the drains before they expire."""
        if now_ms >= state.deadline_ms:
            return self._end(state.plan, problem)
        if now_ms < state.renew_ms:
            return ()
        self.state = replace(state, renew_ms=now_ms + RENEW_MS)
        return self._orders(state.plan)

    def _drained(self, state: Draining, victim: str, now_ms: int) -> Sequence[Action]:
        waiting = state.waiting - {victim}
        self.state = replace(state, waiting=waiting)
        return () if waiting else self._scale(state.plan, now_ms)

    def _scale(self, plan: Begin, now_ms: int) -> Sequence[Action]:
        self.state = Scaling(plan, now_ms + RENEW_MS, now_ms + SCALE_MAX_MS)
        return (SetReplicas(plan.target, plan.victims),)

    def _observed(self, plan: Begin, replicas: int) -> Sequence[Action]:
        if replicas == plan.before:
            return ()
        is_done = isinstance(self.state, Scaling) and replicas == plan.target
        problem = "" if is_done else f"the number of replicas was changed to {replicas} meanwhile"
        return self._end(plan, problem)

    def _end(self, plan: Begin, problem: str = "") -> Sequence[Action]:
        self.state, self._ended = Idle(), frozenset()
        return (Finished(plan.before, plan.target, problem),)

    def _orders(self, plan: Begin) -> Sequence[Action]:
        return tuple(OrderDrain(each, DRAIN_MS) for each in plan.victims if each not in self._ended)
