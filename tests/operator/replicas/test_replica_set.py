"""Replicas come and go as pods do: never two of one, the application before its sidecar, and again after a longer wait."""

import random
from collections.abc import Sequence
from itertools import product

import pytest

from rota_operator.replicas import events as on
from rota_operator.replicas.events import (
    Action,
    Drain,
    DrainFailed,
    Kill,
    ProcessRole,
    ReplicaPolicy,
    ReplicaStopped,
    Restarting,
    Start,
    Terminate,
)
from rota_operator.replicas.replica_set import (
    DrainFinished,
    Draining,
    NotRunning,
    ProcessState,
    ReplicaSet,
    Running,
    Starting,
    Terminating,
    Waiting,
)

RULES = ReplicaPolicy(
    grace_ms=1_000,
    drain_ms=700,
    forced_grace_ms=200,
    backoff_ms=100,
    backoff_max_ms=400,
    backoff_reset_ms=5_000,
)


class Machine:
    """Starts what it is told to, and says so; a test ends what it likes."""

    def __init__(self, policy: ReplicaPolicy = RULES) -> None:
        self.set = ReplicaSet(policy)
        self.now_ms = 0
        self.running: dict[int, tuple[int, ProcessRole]] = {}
        self.actions_taken: list[Action] = []

    def on_actions(self, event: on.Event) -> Sequence[Action]:
        actions = list(self.set.step(event, self.now_ms))
        self.actions_taken += actions
        for action in actions:
            if isinstance(action, Start):
                assert (action.replica, action.part) not in self.running.values(), "two of one"
                self.running[action.run] = action.replica, action.part
        return actions

    def want(self, replicas: int) -> None:
        """And all that is started runs at once."""
        self._settle(self.on_actions(on.DesiredReplicas(replicas)))

    def _settle(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Start):
                self._settle(self.on_actions(on.Started(action.run)))

    def end(self, replica: int, part: ProcessRole, code: int = 0) -> Sequence[Action]:
        run = self.run(replica, part)
        del self.running[run]
        return self.on_actions(on.Exited(run, code))

    def drained(self, replica: int, reason: str = "") -> Sequence[Action]:
        """Its sidecar answers."""
        return self.on_actions(on.Drained(self.run(replica, ProcessRole.SIDECAR), reason))

    def run(self, replica: int, part: ProcessRole) -> int:
        return next(run for run, started in self.running.items() if started == (replica, part))

    def wait(self) -> Sequence[Action]:
        """Until the alarm."""
        next_tick_ms = self.set.next_tick_ms
        assert next_tick_ms is not None
        self.now_ms = max(self.now_ms, next_tick_ms)
        actions = self.on_actions(on.Tick())
        self._settle(actions)
        return actions

    def state(self, replica: int, part: ProcessRole) -> ProcessState:
        return self.set.replicas[replica][part]


def test_each_replica_has_its_sidecar_first_and_then_its_application() -> None:
    machine = Machine()
    machine.want(2)
    parts = [(action.replica, action.part) for action in machine.actions_taken if isinstance(action, Start)]
    assert parts == [
        (0, ProcessRole.SIDECAR),
        (1, ProcessRole.SIDECAR),
        (0, ProcessRole.APP),
        (1, ProcessRole.APP),
    ]
    assert all(
        isinstance(state, Running) for parts in machine.set.replicas.values() for state in parts.values()
    )


def test_a_workload_that_was_not_adopted_has_no_sidecar() -> None:
    machine = Machine(ReplicaPolicy(has_sidecar=False))
    machine.want(1)
    assert [action.part for action in machine.actions_taken if isinstance(action, Start)] == [ProcessRole.APP]
    assert machine.on_actions(on.DesiredReplicas(0)) == [Terminate(machine.run(0, ProcessRole.APP))]
    assert machine.end(0, ProcessRole.APP) == [ReplicaStopped(0)]


def test_who_goes_finishes_first_and_ends_its_application_before_its_sidecar() -> None:
    machine = Machine()
    machine.want(2)
    app, sidecar = machine.run(1, ProcessRole.APP), machine.run(1, ProcessRole.SIDECAR)
    assert machine.on_actions(on.DesiredReplicas(1)) == [Drain(sidecar)]
    assert machine.drained(1) == [Terminate(app)]
    assert machine.end(1, ProcessRole.APP) == [Terminate(sidecar)]
    assert machine.end(1, ProcessRole.SIDECAR) == [ReplicaStopped(1)]
    assert list(machine.set.replicas) == [0]


def test_a_replica_that_does_not_drain_in_time_is_terminated_and_reported() -> None:
    machine = Machine()
    machine.want(1)
    machine.on_actions(on.DesiredReplicas(0))
    failed_drain, ended = machine.wait()
    assert machine.now_ms == RULES.drain_ms
    assert failed_drain == DrainFailed(0, "records still in flight after 700 ms")
    assert ended == Terminate(machine.run(0, ProcessRole.APP))
    assert machine.drained(0) == []


def test_a_sidecar_that_says_what_is_left_is_not_waited_for() -> None:
    machine = Machine()
    machine.want(1)
    machine.on_actions(on.DesiredReplicas(0))
    assert machine.drained(0, "3 records are left") == [
        DrainFailed(0, "3 records are left"),
        Terminate(machine.run(0, ProcessRole.APP)),
    ]


def test_whoever_hurries_waits_for_no_drain_and_for_a_moment_only() -> None:
    machine = Machine()
    machine.want(2)
    machine.on_actions(on.DesiredReplicas(1))
    app, sidecar = machine.run(1, ProcessRole.APP), machine.run(1, ProcessRole.SIDECAR)
    assert machine.on_actions(on.ForceStop()) == [
        DrainFailed(1, "shutdown was forced"),
        Terminate(app),
    ]
    assert machine.wait() == [Kill(app)]
    assert machine.now_ms == RULES.forced_grace_ms
    assert machine.end(1, ProcessRole.APP) == [Terminate(sidecar)]
    # Who stays is not hurried.
    assert all(isinstance(machine.state(0, part), Running) for part in ProcessRole)


def test_who_was_asked_to_end_is_hurried_too_and_never_given_longer() -> None:
    machine = Machine()
    machine.want(1)
    machine.on_actions(on.DesiredReplicas(0))
    machine.drained(0)
    machine.now_ms = RULES.grace_ms - 50
    assert machine.on_actions(on.ForceStop()) == []
    assert machine.set.next_tick_ms == RULES.grace_ms
    machine.wait()
    assert machine.on_actions(on.ForceStop()) == []


@pytest.mark.parametrize("part", ProcessRole)
def test_where_one_of_the_two_ends_nothing_is_waited_for(part: ProcessRole) -> None:
    machine = Machine()
    machine.want(1)
    machine.on_actions(on.DesiredReplicas(0))
    other = next(machine.run(0, each) for each in ProcessRole if each is not part)
    assert machine.end(0, part, 1) == [DrainFailed(0, f"{part.value} exited with code 1"), Terminate(other)]


def test_who_does_not_end_in_time_is_killed_and_so_is_its_sidecar() -> None:
    machine = Machine()
    machine.want(1)
    machine.on_actions(on.DesiredReplicas(0))
    machine.drained(0)
    app, sidecar = machine.run(0, ProcessRole.APP), machine.run(0, ProcessRole.SIDECAR)
    assert machine.wait() == [Kill(app)]
    assert machine.now_ms == RULES.grace_ms
    assert machine.set.next_tick_ms is None
    assert machine.end(0, ProcessRole.APP) == [Terminate(sidecar)]
    # The time was for both.
    assert machine.wait() == [Kill(sidecar)]
    assert machine.now_ms == RULES.grace_ms
    assert machine.end(0, ProcessRole.SIDECAR) == [ReplicaStopped(0)]


@pytest.mark.parametrize("part", ProcessRole)
def test_a_part_that_ends_is_started_again_alone_and_later_each_time(part: ProcessRole) -> None:
    machine = Machine()
    machine.want(1)
    waits = []
    for _ in range(4):
        (again,) = machine.end(0, part, 3)
        assert isinstance(again, Restarting)
        assert (again.replica, again.part, again.code) == (0, part, 3)
        waits.append(again.at_ms - machine.now_ms)
        assert [type(action) for action in machine.wait()] == [Start]
    assert waits == [100, 200, 400, 400]


def test_who_was_well_for_long_waits_the_shortest_time_again() -> None:
    machine = Machine()
    machine.want(1)
    for _ in range(3):
        machine.end(0, ProcessRole.APP)
        machine.wait()
    machine.now_ms += RULES.backoff_reset_ms
    (again,) = machine.end(0, ProcessRole.APP)
    assert isinstance(again, Restarting)
    assert again.at_ms - machine.now_ms == RULES.backoff_ms


def test_what_cannot_be_started_is_tried_again() -> None:
    machine = Machine()
    (start,) = machine.on_actions(on.DesiredReplicas(1))
    assert isinstance(start, Start)
    del machine.running[start.run]
    (again,) = machine.on_actions(on.Exited(start.run, 127))
    assert again == Restarting(0, ProcessRole.SIDECAR, 127, RULES.backoff_ms)


def test_a_number_that_is_wanted_again_waits_until_who_had_it_is_gone() -> None:
    machine = Machine()
    machine.want(1)
    machine.on_actions(on.DesiredReplicas(0))
    assert machine.on_actions(on.DesiredReplicas(1)) == []
    machine.drained(0)
    machine.end(0, ProcessRole.APP)
    actions = machine.end(0, ProcessRole.SIDECAR)
    assert actions[0] == ReplicaStopped(0)
    assert [type(action) for action in actions] == [ReplicaStopped, Start]


def test_who_waits_to_be_started_again_goes_at_once() -> None:
    machine = Machine()
    machine.want(1)
    machine.end(0, ProcessRole.APP)
    assert machine.on_actions(on.DesiredReplicas(0)) == [Terminate(machine.run(0, ProcessRole.SIDECAR))]


LIVES: tuple[ProcessState, ...] = (
    NotRunning(),
    Waiting(50, 1),
    Starting(1, 0),
    Running(1, 0, 0),
    Terminating(1, 50),
    Terminating(1, None),
)
EVENTS: tuple[on.Event, ...] = (
    on.DesiredReplicas(0), on.DesiredReplicas(1), on.DesiredReplicas(2), on.Started(1), on.Exited(1, 0), on.Started(99), on.Exited(99, 1), on.Tick(),
    on.Drained(1), on.Drained(1, "3 left"), on.Drained(99), on.ForceStop(),
)  # fmt: skip


DRAINS: tuple[Draining | DrainFinished | None, ...] = (
    None,
    Draining(1, 50),
    Draining(2, 200),
    DrainFinished(),
)


@pytest.mark.parametrize(("app", "sidecar", "drain", "event"), list(product(LIVES, LIVES, DRAINS, EVENTS)))
def test_every_life_meets_every_event(
    app: ProcessState, sidecar: ProcessState, drain: Draining | DrainFinished | None, event: on.Event
) -> None:
    """Also pairs that cannot come about: nothing is left without an answer."""
    subject = ReplicaSet(RULES)
    subject.step(on.DesiredReplicas(1), 0)
    replica = subject._replicas[0]
    replica.parts = {ProcessRole.SIDECAR: sidecar, ProcessRole.APP: app}
    replica.drain, replica.stop_deadline_ms = drain, None if drain is None else 150
    subject._runs = {1: (replica, ProcessRole.APP)}
    actions = subject.step(event, 100)
    assert len({action.run for action in actions if isinstance(action, Start)}) == sum(
        isinstance(action, Start) for action in actions
    )


def chaos(machine: Machine, chance: random.Random) -> int:
    """A hundred things happen; how many replicas were wanted last."""
    wanted = 0
    for _ in range(100):
        machine.now_ms += chance.choice([0, 1, 50, 2_000])
        match chance.randrange(6):
            case 0:
                wanted = chance.randrange(4)
                machine.on_actions(on.DesiredReplicas(wanted))
            case 1 if machine.running:
                machine.on_actions(on.Started(chance.choice(list(machine.running))))
            case 2 if machine.running:
                run = chance.choice(list(machine.running))
                del machine.running[run]
                machine.on_actions(on.Exited(run, chance.choice([0, 1, -9])))
            case 3 if machine.running:
                machine.on_actions(
                    on.Drained(chance.choice(list(machine.running)), chance.choice(["", "3 left"]))
                )
            case 4:
                machine.on_actions(on.ForceStop())
            case _:
                machine.on_actions(on.Tick())
    return wanted


def calm(machine: Machine) -> None:
    """Perform all that is asked, and let time pass."""
    for run in list(machine.running):
        machine.on_actions(on.Drained(run))
    for run, (number, part) in list(machine.running.items()):
        state = machine.state(number, part)
        if isinstance(state, Terminating):
            del machine.running[run]
            machine.on_actions(on.Exited(run, 0))
        elif isinstance(state, Starting):
            machine.on_actions(on.Started(run))
    if machine.set.next_tick_ms is not None:
        machine.wait()


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_there_are_in_the_end_as_many_as_are_wanted(seed: int) -> None:
    machine = Machine()
    wanted = chaos(machine, random.Random(seed))
    for _ in range(50):
        calm(machine)
    assert sorted(machine.set.replicas) == list(range(wanted))
    assert sorted(machine.running.values(), key=str) == sorted(product(range(wanted), ProcessRole), key=str)
    assert all(
        isinstance(state, Running) for parts in machine.set.replicas.values() for state in parts.values()
    )
