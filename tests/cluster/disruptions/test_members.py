"""A pod that comes back as another member does not speak for the one that it was."""

from collections.abc import Sequence

from tests.cluster.disruptions.members import Members
from tests.sidecar.membership.rolling.history import History, Limits, assigned_to_two
from tests.support.sidecar import Event


def assigned(generation: int, *partitions: int) -> Event:
    return {
        "event": "assigned",
        "incarnation": 1,
        "generation": generation,
        "partitions": {"records": [*partitions]},
    }


LOST: Event = {"event": "lost", "partitions": {"records": [0]}}


def faults(members: Members, events: dict[str, Sequence[Event]]) -> Sequence[str]:
    lives = [life for pod, each in events.items() for life in members.lives(f"{pod}.1", pod, each)]
    return [*assigned_to_two(History((), Limits(0, 0, 0), lives, (), (), ()))]


def test_pods_that_succeed_each_other_are_one_member() -> None:
    members = Members()
    members.note(6, {"old": "m-1"})
    members.note(6, {"new": "m-1"})
    assert members.knows(["old", "new"])
    assert faults(members, {"old": [assigned(6, 0)], "new": [assigned(6, 0)]}) == []


def test_a_fenced_one_that_comes_back_is_another_member_from_then_on() -> None:
    members = Members()
    members.note(6, {"old": "m-1", "new": "m-1"})
    members.note(10, {"new": "m-2"})
    came_back = [assigned(6, 0), LOST, assigned(10, 0)]
    assert faults(members, {"old": [assigned(6, 0)], "new": came_back}) == []
    assert len(faults(members, {"old": [assigned(6, 0), assigned(10, 0)], "new": came_back})) == 1


def test_an_unknown_pod_is_a_member_of_its_own() -> None:
    members = Members()
    assert not members.knows(["a"])
    assert len(faults(members, {"a": [assigned(1, 0)], "b": [assigned(1, 0)]})) == 1
