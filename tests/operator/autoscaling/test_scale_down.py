"""The drained scale-down: each state meets each event, and no replica stays drained."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rota_operator.autoscaling.scale_down import (
    DRAIN_MAX_MS,
    DRAIN_MS,
    RENEW_MS,
    SCALE_MAX_MS,
    Action,
    Begin,
    Candidate,
    DrainAnswered,
    Draining,
    Event,
    Finished,
    Idle,
    OrderDrain,
    ReplicasObserved,
    RolloutBegan,
    ScaleAnswered,
    ScaleDown,
    Scaling,
    SetReplicas,
    Tick,
    VictimEnded,
    VictimOrder,
    choose_victims,
)

PLAN = Begin(4, 2, ("c", "d"))
ORDERS = (OrderDrain("c", DRAIN_MS), OrderDrain("d", DRAIN_MS))
IN_FLIGHT = "2 records are still in flight"


def idle() -> ScaleDown:
    return ScaleDown()


def draining() -> ScaleDown:
    machine = ScaleDown()
    assert machine.step(PLAN, 0) == ORDERS
    return machine


def last_draining() -> ScaleDown:
    machine = draining()
    assert machine.step(DrainAnswered("c"), 0) == ()
    return machine


def scaling() -> ScaleDown:
    machine = last_draining()
    assert machine.step(DrainAnswered("d"), 0) == (SetReplicas(2, PLAN.victims),)
    return machine


BEGIN_AGAIN = (Finished(4, 2, "another scale-down is under way"),)
BY_HAND = (Finished(4, 2, "the number of replicas was changed to 7 meanwhile"),)
DONE = (Finished(4, 2),)
SCALE = (SetReplicas(2, PLAN.victims),)
LATE = "records in flight after 120 s: "
# By event: time, and actions and state after it in each of the four situations.
ROWS: list[tuple[Event, int, list[tuple[Sequence[Action], type]]]] = [
    (PLAN, 0, [(ORDERS, Draining), (BEGIN_AGAIN, Draining), (BEGIN_AGAIN, Draining), (BEGIN_AGAIN, Scaling)]),
    (DrainAnswered("d"), 0, [((), Idle), ((), Draining), (SCALE, Scaling), ((), Scaling)]),
    (DrainAnswered("d", IN_FLIGHT), 0, [((), Idle), ((), Draining), ((), Draining), ((), Scaling)]),
    (DrainAnswered("x"), 0, [((), Idle), ((), Draining), ((), Draining), ((), Scaling)]),
    (VictimEnded("d"), 0, [((), Idle), ((), Draining), (SCALE, Scaling), ((), Scaling)]),
    (ReplicasObserved(4), 0, [((), Idle), ((), Draining), ((), Draining), ((), Scaling)]),
    (ReplicasObserved(7), 0, [((), Idle), (BY_HAND, Idle), (BY_HAND, Idle), (BY_HAND, Idle)]),
    (ScaleAnswered(), 0, [((), Idle), ((), Draining), ((), Draining), (DONE, Idle)]),
    (
        ScaleAnswered("conflict"),
        0,
        [((), Idle), ((), Draining), ((), Draining), ((Finished(4, 2, "conflict"),), Idle)],
    ),
    (
        RolloutBegan(),
        0,
        [
            ((), Idle),
            ((Finished(4, 2, "a rollout has begun"),), Idle),
            ((Finished(4, 2, "a rollout has begun"),), Idle),
            ((), Scaling),
        ],
    ),
    (Tick(), RENEW_MS - 1, [((), Idle), ((), Draining), ((), Draining), ((), Scaling)]),
    (Tick(), RENEW_MS, [((), Idle), (ORDERS, Draining), (ORDERS, Draining), (ORDERS, Scaling)]),
    (
        Tick(),
        DRAIN_MAX_MS,
        [
            ((), Idle),
            ((Finished(4, 2, f"{LATE}c, d"),), Idle),
            ((Finished(4, 2, f"{LATE}d"),), Idle),
            ((Finished(4, 2, "not confirmed within 60 s"),), Idle),
        ],
    ),
]
STATES = [idle, draining, last_draining, scaling]
CASES = [
    pytest.param(state, event, at_ms, *outcome, id=f"{state.__name__}-{event}-{at_ms}")
    for event, at_ms, outcomes in ROWS
    for state, outcome in zip(STATES, outcomes, strict=True)
]


@pytest.mark.parametrize(("state", "event", "at_ms", "actions", "after"), CASES)
def test_each_state_meets_each_event(
    state: object, event: Event, at_ms: int, actions: Sequence[Action], after: type
) -> None:
    assert callable(state)
    machine: ScaleDown = state()
    assert tuple(machine.step(event, at_ms)) == tuple(actions)
    assert isinstance(machine.state, after)


def test_the_number_may_have_changed_although_the_answer_was_lost() -> None:
    assert scaling().step(ReplicasObserved(2), 0) == DONE
    # Somebody else changed it while the victims drained: it is not ours to undo.
    assert draining().step(ReplicasObserved(2), 0)[0] != DONE[0]


def test_a_victim_that_ended_is_ordered_nothing_more() -> None:
    machine = draining()
    machine.step(VictimEnded("c"), 1)
    assert machine.step(Tick(), RENEW_MS) == (OrderDrain("d", DRAIN_MS),)


@pytest.mark.parametrize(("before", "target"), [(2, 2), (2, 3), (2, -1)])
def test_a_number_that_does_not_fall_is_rejected(before: int, target: int) -> None:
    machine = ScaleDown()
    (found,) = machine.step(Begin(before, target, ("a",)), 0)
    assert isinstance(found, Finished)
    assert found.problem
    assert machine.state == Idle()
    assert machine.next_tick_ms is None


def test_nobody_is_drained_where_nobody_is_left_to_drain() -> None:
    assert ScaleDown().step(Begin(1, 0, ()), 0) == (SetReplicas(0, ()),)


def test_victims_are_those_that_the_workload_removes() -> None:
    pods = [Candidate("a", 0, 1), Candidate("b", 1, 3), Candidate("c", 2, 1, in_flight=4)]
    assert choose_victims(pods, 2, VictimOrder.HIGHEST_ORDINAL) == ("c", "b")
    assert choose_victims(pods, 2, VictimOrder.FEWEST_PARTITIONS) == ("a", "c")
    assert choose_victims(pods, 9, VictimOrder.HIGHEST_ORDINAL) == ("c", "b", "a")
    assert choose_victims(pods, 0, VictimOrder.HIGHEST_ORDINAL) == ()


EVENTS = some.one_of(
    some.just(PLAN),
    some.builds(DrainAnswered, some.sampled_from(["c", "d", "x"]), some.sampled_from(["", IN_FLIGHT])),
    some.builds(VictimEnded, some.sampled_from(["c", "d"])),
    some.builds(ReplicasObserved, some.sampled_from([2, 4, 4, 7])),
    some.builds(ScaleAnswered, some.sampled_from(["", "conflict"])),
    some.just(RolloutBegan()),
    some.just(Tick()),
)


@settings(max_examples=200)
@given(some.lists(some.tuples(EVENTS, some.integers(0, 20_000)), max_size=30))
def test_it_ends_and_scales_only_when_all_victims_are_drained(events: Sequence[tuple[Event, int]]) -> None:
    machine, now_ms = ScaleDown(), 0
    done: set[str] = set()
    for event, passed_ms in events:
        now_ms += passed_ms
        was_idle = isinstance(machine.state, Idle)
        if was_idle:
            done = set()
        elif isinstance(event, VictimEnded) or (isinstance(event, DrainAnswered) and not event.problem):
            done.add(event.victim)
        for action in machine.step(event, now_ms):
            if isinstance(action, SetReplicas):
                assert done >= set(PLAN.victims)
    # Whatever comes, ticks end it.
    machine.step(Tick(), now_ms + DRAIN_MAX_MS)
    machine.step(Tick(), now_ms + DRAIN_MAX_MS + SCALE_MAX_MS)
    assert machine.state == Idle()
