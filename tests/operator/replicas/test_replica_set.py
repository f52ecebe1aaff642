"""Replicas come and go as pods do: never two of one, the application before its sidecar, and again after a longer wait."""

import random
from collections.abc import Sequence
from itertools import product

import pytest

from rota_operator.replicas import events as on
from rota_operator.replicas.events import (
    Action,
    Again,
    Drain,
    Gone,
    Kill,
    Part,
    Rules,
    Start,
    Terminate,
    Undrained,
)
from rota_operator.replicas.replica_set import (
    Down,
    Draining,
    Ending,
    Finished,
    Life,
    ReplicaSet,
    Starting,
    Up,
    Waiting,
)

RULES = Rules(
    grace_ms=1_000, drain_ms=700, hurry_ms=200, backoff_ms=100, backoff_max_ms=400, well_after_ms=5_000
)


class Machine:
    """Starts what it is told to, and says so; a test ends what it likes."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.set = ReplicaSet(rules)
        self.now_ms = 0
        self.running: dict[int, tuple[int, Part]] = {}
        self.told: list[Action] = []

    def hear(self, event: on.Event) -> Sequence[Action]:
        actions = list(self.set.step(event, self.now_ms))
        self.told += actions
        for action in actions:
            if isinstance(action, Start):
                assert (action.replica, action.part) not in self.running.values(), "two of one"
                self.running[action.run] = action.replica, action.part
        return actions

    def want(self, replicas: int) -> None:
        """And all that is started runs at once."""
        self._settle(self.hear(on.Wanted(replicas)))

    def _settle(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Start):
                self._settle(self.hear(on.Started(action.run)))

    def end(self, replica: int, part: Part, code: int = 0) -> Sequence[Action]:
        run = self.run(replica, part)
        del self.running[run]
        return self.hear(on.Exited(run, code))

    def drained(self, replica: int, wrong: str = "") -> Sequence[Action]:
        """Its sidecar answers."""
        return self.hear(on.Drained(self.run(replica, Part.SIDECAR), wrong))

    def run(self, replica: int, part: Part) -> int:
        return next(run for run, place in self.running.items() if place == (replica, part))

    def wait(self) -> Sequence[Action]:
        """Until the alarm."""
        alarm = self.set.alarm
        assert alarm is not None
        self.now_ms = max(self.now_ms, alarm)
        actions = self.hear(on.Tick())
        self._settle(actions)
        return actions

    def life(self, replica: int, part: Part) -> Life:
        return self.set.replicas[replica][part]


def test_each_replica_has_its_sidecar_first_and_then_its_application() -> None:
    machine = Machine()
    machine.want(2)
    parts = [(action.replica, action.part) for action in machine.told if isinstance(action, Start)]
    assert parts == [(0, Part.SIDECAR), (1, Part.SIDECAR), (0, Part.APP), (1, Part.APP)]
    assert all(isinstance(life, Up) for parts in machine.set.replicas.values() for life in parts.values())


def test_a_workload_that_was_not_adopted_has_no_sidecar() -> None:
    machine = Machine(Rules(has_sidecar=False))
    machine.want(1)
    assert [action.part for action in machine.told if isinstance(action, Start)] == [Part.APP]
    assert machine.hear(on.Wanted(0)) == [Terminate(machine.run(0, Part.APP))]
    assert machine.end(0, Part.APP) == [Gone(0)]


def test_who_goes_finishes_first_and_ends_its_application_before_its_sidecar() -> None:
    machine = Machine()
    machine.want(2)
    app, sidecar = machine.run(1, Part.APP), machine.run(1, Part.SIDECAR)
    assert machine.hear(on.Wanted(1)) == [Drain(sidecar)]
    assert machine.drained(1) == [Terminate(app)]
    assert machine.end(1, Part.APP) == [Terminate(sidecar)]
    assert machine.end(1, Part.SIDECAR) == [Gone(1)]
    assert list(machine.set.replicas) == [0]


def test_who_does_not_finish_in_time_ends_all_the_same_and_that_is_told() -> None:
    machine = Machine()
    machine.want(1)
    machine.hear(on.Wanted(0))
    told, ended = machine.wait()
    assert machine.now_ms == RULES.drain_ms
    assert told == Undrained(0, "records still in flight after 700 ms")
    assert ended == Terminate(machine.run(0, Part.APP))
    assert machine.drained(0) == []


def test_a_sidecar_that_says_what_is_left_is_not_waited_for() -> None:
    machine = Machine()
    machine.want(1)
    machine.hear(on.Wanted(0))
    assert machine.drained(0, "3 records are left") == [
        Undrained(0, "3 records are left"),
        Terminate(machine.run(0, Part.APP)),
    ]


def test_whoever_hurries_waits_for_no_drain_and_for_a_moment_only() -> None:
    machine = Machine()
    machine.want(2)
    machine.hear(on.Wanted(1))
    app, sidecar = machine.run(1, Part.APP), machine.run(1, Part.SIDECAR)
    assert machine.hear(on.Hurry()) == [
        Undrained(1, "shutdown was forced"),
        Terminate(app),
    ]
    assert machine.wait() == [Kill(app)]
    assert machine.now_ms == RULES.hurry_ms
    assert machine.end(1, Part.APP) == [Terminate(sidecar)]
    # Who stays is not hurried.
    assert all(isinstance(machine.life(0, part), Up) for part in Part)


def test_who_was_asked_to_end_is_hurried_too_and_never_given_longer() -> None:
    machine = Machine()
    machine.want(1)
    machine.hear(on.Wanted(0))
    machine.drained(0)
    machine.now_ms = RULES.grace_ms - 50
    assert machine.hear(on.Hurry()) == []
    assert machine.set.alarm == RULES.grace_ms
    machine.wait()
    assert machine.hear(on.Hurry()) == []


@pytest.mark.parametrize("part", Part)
def test_where_one_of_the_two_ends_nothing_is_waited_for(part: Part) -> None:
    machine = Machine()
    machine.want(1)
    machine.hear(on.Wanted(0))
    other = next(machine.run(0, each) for each in Part if each is not part)
    assert machine.end(0, part, 1) == [Undrained(0, f"{part.value} exited with code 1"), Terminate(other)]


def test_who_does_not_end_in_time_is_killed_and_so_is_its_sidecar() -> None:
    machine = Machine()
    machine.want(1)
    machine.hear(on.Wanted(0))
    machine.drained(0)
    app, sidecar = machine.run(0, Part.APP), machine.run(0, Part.SIDECAR)
    assert machine.wait() == [Kill(app)]
    assert machine.now_ms == RULES.grace_ms
    assert machine.set.alarm is None
    assert machine.end(0, Part.APP) == [Terminate(sidecar)]
    # The time was for both.
    assert machine.wait() == [Kill(sidecar)]
    assert machine.now_ms == RULES.grace_ms
    assert machine.end(0, Part.SIDECAR) == [Gone(0)]


@pytest.mark.parametrize("part", Part)
def test_a_part_that_ends_is_started_again_alone_and_later_each_time(part: Part) -> None:
    machine = Machine()
    machine.want(1)
    waits = []
    for _ in range(4):
        (again,) = machine.end(0, part, 3)
        assert isinstance(again, Again)
        assert (again.replica, again.part, again.code) == (0, part, 3)
        waits.append(again.at_ms - machine.now_ms)
        assert [type(action) for action in machine.wait()] == [Start]
    assert waits == [100, 200, 400, 400]


def test_who_was_well_for_long_waits_the_shortest_time_again() -> None:
    machine = Machine()
    machine.want(1)
    for _ in range(3):
        machine.end(0, Part.APP)
        machine.wait()
    machine.now_ms += RULES.well_after_ms
    (again,) = machine.end(0, Part.APP)
    assert isinstance(again, Again)
    assert again.at_ms - machine.now_ms == RULES.backoff_ms


def test_what_cannot_be_started_is_tried_again() -> None:
    machine = Machine()
    (start,) = machine.hear(on.Wanted(1))
    assert isinstance(start, Start)
    del machine.running[start.run]
    (again,) = machine.hear(on.Exited(start.run, 127))
    assert again == Again(0, Part.SIDECAR, 127, RULES.backoff_ms)


def test_a_number_that_is_wanted_again_waits_until_who_had_it_is_gone() -> None:
    machine = Machine()
    machine.want(1)
    machine.hear(on.Wanted(0))
    assert machine.hear(on.Wanted(1)) == []
    machine.drained(0)
    machine.end(0, Part.APP)
    actions = machine.end(0, Part.SIDECAR)
    assert actions[0] == Gone(0)
    assert [type(action) for action in actions] == [Gone, Start]


def test_who_waits_to_be_started_again_goes_at_once() -> None:
    machine = Machine()
    machine.want(1)
    machine.end(0, Part.APP)
    assert machine.hear(on.Wanted(0)) == [Terminate(machine.run(0, Part.SIDECAR))]


LIVES: tuple[Life, ...] = (
    Down(),
    Waiting(50, 1),
    Starting(1, 0),
    Up(1, 0, 0),
    Ending(1, 50),
    Ending(1, None),
)
EVENTS: tuple[on.Event, ...] = (
    on.Wanted(0), on.Wanted(1), on.Wanted(2), on.Started(1), on.Exited(1, 0), on.Started(99), on.Exited(99, 1), on.Tick(),
    on.Drained(1), on.Drained(1, "3 left"), on.Drained(99), on.Hurry(),
)  # fmt: skip


DRAINS: tuple[Draining | Finished | None, ...] = (None, Draining(1, 50), Draining(2, 200), Finished())


@pytest.mark.parametrize(("app", "sidecar", "drain", "event"), list(product(LIVES, LIVES, DRAINS, EVENTS)))
def test_every_life_meets_every_event(
    app: Life, sidecar: Life, drain: Draining | Finished | None, event: on.Event
) -> None:
    """Also pairs that cannot come about: nothing is left without an answer."""
    subject = ReplicaSet(RULES)
    subject.step(on.Wanted(1), 0)
    replica = subject._replicas[0]
    replica.parts = {Part.SIDECAR: sidecar, Part.APP: app}
    replica.drain, replica.ends_ms = drain, None if drain is None else 150
    subject._runs = {1: (replica, Part.APP)}
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
                machine.hear(on.Wanted(wanted))
            case 1 if machine.running:
                machine.hear(on.Started(chance.choice(list(machine.running))))
            case 2 if machine.running:
                run = chance.choice(list(machine.running))
                del machine.running[run]
                machine.hear(on.Exited(run, chance.choice([0, 1, -9])))
            case 3 if machine.running:
                machine.hear(on.Drained(chance.choice(list(machine.running)), chance.choice(["", "3 left"])))
            case 4:
                machine.hear(on.Hurry())
            case _:
                machine.hear(on.Tick())
    return wanted


def calm(machine: Machine) -> None:
    """Everybody does what is asked, and time passes."""
    for run in list(machine.running):
        machine.hear(on.Drained(run))
    for run, (number, part) in list(machine.running.items()):
        life = machine.life(number, part)
        if isinstance(life, Ending):
            del machine.running[run]
            machine.hear(on.Exited(run, 0))
        elif isinstance(life, Starting):
            machine.hear(on.Started(run))
    if machine.set.alarm is not None:
        machine.wait()


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_there_are_in_the_end_as_many_as_are_wanted(seed: int) -> None:
    machine = Machine()
    wanted = chaos(machine, random.Random(seed))
    for _ in range(50):
        calm(machine)
    assert sorted(machine.set.replicas) == list(range(wanted))
    assert sorted(machine.running.values(), key=str) == sorted(product(range(wanted), Part), key=str)
    assert all(isinstance(life, Up) for parts in machine.set.replicas.values() for life in parts.values())
