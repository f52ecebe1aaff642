"""Dynamic members of a Deployment: who joins, who hands over to whom, and who goes on with a membership that was given up."""

from dataclasses import replace

import pytest

from rota_operator.reconcile.instances import REPLACEMENT_MS, Holder
from rota_operator.reconcile.successions import (
    STREAM_MS,
    UNREADY_MS,
    GivenUp,
    HandOver,
    Join,
    MemberPool,
    PodState,
    RemoveMember,
    TakeOver,
    orders,
)

pytestmark = pytest.mark.unit
SILENCE_MS = 45_000


def pool(size: int) -> MemberPool:
    return MemberPool(size, SILENCE_MS)


def holder(name: str) -> Holder:
    return Holder(name, f"uid-{name}")


def member(name: str) -> PodState:
    return PodState(holder(name), name, is_connected=True, is_ready=True, member_id=f"id-{name}")


def waiting(name: str, *, is_ready: bool = True) -> PodState:
    return PodState(holder(name), name, is_connected=True, awaits_join=True, is_ready=is_ready)


def ending(name: str, awaits_ms: int = 0) -> PodState:
    return replace(member(name), is_leaving=True, awaits_successor_ms=awaits_ms)


def deleted(name: str) -> PodState:
    """A pod that is deleted, and whose sidecar does not know it yet."""
    return replace(member(name), is_leaving=True)


def handing_over(name: str, successor: str) -> PodState:
    return replace(member(name), is_leaving=True, is_draining=True, successor=successor)


def gave_up(name: str) -> PodState:
    return PodState(
        holder(name), name, is_connected=True, is_leaving=True, is_draining=True, has_given_up=True
    )


def connecting(name: str) -> PodState:
    """A pod whose sidecar does not know yet whether it waits."""
    return PodState(holder(name), name, is_connected=True)


def unheard(name: str, silent_ms: int = 0) -> PodState:
    return PodState(holder(name), name, is_connected=False, silent_ms=silent_ms)


JOIN_C, JOIN_D = Join(holder("c")), Join(holder("d"))
A_TO_C = HandOver(holder("a"), holder("c"))
A_ALONE = HandOver(holder("a"), None)
CASES = {
    "the oldest ready ones join, as many as are missing": (
        2,
        [member("a"), waiting("d"), waiting("c"), waiting("b", is_ready=False)],
        [JOIN_C],
    ),
    "one without an application joins after a while, after the ready ones": (
        2,
        [replace(waiting("a", is_ready=False), awaits_join_ms=UNREADY_MS), waiting("c")],
        [JOIN_C, Join(holder("a"))],
    ),
    "not at once": (1, [replace(waiting("a", is_ready=False), awaits_join_ms=UNREADY_MS - 1)], []),
    "and none hands over to it": (
        1,
        [ending("a", 9_000), replace(waiting("c", is_ready=False), awaits_join_ms=UNREADY_MS)],
        [],
    ),
    "a surplus pod waits": (2, [member("a"), member("b"), waiting("c")], []),
    "a pod that ends hands over to the one that waits": (2, [ending("a"), member("b"), waiting("c")], [A_TO_C]),
    "each to another one": (
        2,
        [ending("a"), ending("b"), waiting("c"), waiting("d")],
        [A_TO_C, HandOver(holder("b"), holder("d"))],
    ),
    "and only as many as are wanted": (
        1,
        [ending("a"), ending("b"), waiting("c"), waiting("d")],
        [A_TO_C, HandOver(holder("b"), None)],
    ),
    "it waits for one that starts": (2, [ending("a", 9_000), member("b"), unheard("c")], []),
    "and for one that has just connected": (2, [ending("a", 9_000), member("b"), connecting("c")], []),
    "for which none joins": (2, [member("b"), connecting("c"), waiting("d")], []),
    "and for one without an application": (2, [ending("a", 9_000), member("b"), waiting("c", is_ready=False)], []),
    "and for one that its controller is to create": (2, [ending("a", REPLACEMENT_MS - 1), member("b")], []),
    "but not for ever": (2, [ending("a", REPLACEMENT_MS), member("b")], [A_ALONE]),
    "one that is scaled away has no successor": (1, [ending("a"), member("b"), waiting("c")], [A_ALONE]),
    "nor has one that drains and is not deleted": (
        2,
        [replace(ending("a"), is_leaving=False), member("b"), waiting("c")],
        [A_ALONE, JOIN_C],
    ),
    "none joins for a member that is about to wait": (2, [deleted("a"), member("b"), waiting("c")], []),
    "one joins for a member that leaves": (
        2,
        [replace(deleted("a"), is_draining=True), member("b"), waiting("c")],
        [JOIN_C],
    ),
    "none joins while a successor is to come": (
        2,
        [handing_over("a", "c"), member("b"), waiting("c"), waiting("d")],
        [],
    ),
    "a successor that has ended is replaced": (
        2,
        [handing_over("a", "x"), member("b"), waiting("c")],
        [A_TO_C],
    ),
    "and so is one that has joined by itself": (
        2,
        [handing_over("a", "b"), member("b"), waiting("c")],
        [A_TO_C],
    ),
    "or it leaves the group": (2, [handing_over("a", "x"), member("b")], [A_ALONE]),
    "a successor that is not heard may come back": (
        2,
        [handing_over("a", "c"), member("b"), unheard("c"), waiting("d")],
        [],
    ),
    "none joins for one that may have joined by itself": (2, [member("a"), unheard("b"), waiting("c")], []),
    "but for one that is silent for longer than a session": (
        2,
        [member("a"), unheard("b", SILENCE_MS + 1), waiting("c")],
        [JOIN_C],
    ),
    "a member that is not heard is one until its session has timed out": (
        2,
        [member("a"), replace(member("b"), is_connected=False, silent_ms=SILENCE_MS), waiting("c")],
        [],
    ),
    "a pod that ends and is not heard any more has no member": (
        2,
        [member("b"), replace(deleted("a"), is_connected=False, silent_ms=STREAM_MS + 1), waiting("c")],
        [JOIN_C],
    ),
    "a pod that does not run yet is none": (
        2,
        [member("a"), replace(unheard("b"), is_running=False), waiting("c")],
        [JOIN_C],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_ordered(case: str) -> None:
    size, pods, expected = CASES[case]
    assert orders(pool(size), pods, []) == expected
    assert orders(pool(size), pods[::-1], []) == expected, "whatever the order of the pods"


def test_a_membership_goes_to_its_successor_and_to_no_other_pod() -> None:
    given_up = [GivenUp("id-a", "c")]
    before = [gave_up("a"), member("b"), waiting("c"), waiting("d")]
    assert orders(pool(2), before, given_up) == [TakeOver(holder("c"), "id-a")]
    assert orders(pool(2), before[1:], given_up) == [TakeOver(holder("c"), "id-a")], "its former pod is gone"
    after = replace(member("c"), member_id="id-a")
    assert orders(pool(2), [gave_up("a"), member("b"), after, waiting("d")], given_up) == []
    assert orders(pool(2), [gave_up("a"), member("b"), unheard("c"), waiting("d")], given_up) == []


def test_a_membership_whose_successor_has_ended_is_removed_and_another_pod_joins() -> None:
    given_up = [GivenUp("id-a", "c")]
    removed = RemoveMember(holder("b"), "id-a")
    assert orders(pool(2), [gave_up("a"), member("b"), waiting("d")], given_up) == [JOIN_D, removed]
    ended = replace(unheard("c"), is_running=False)
    assert orders(pool(2), [member("b"), ended, waiting("d")], given_up) == [JOIN_D, removed]
    leaving = replace(unheard("c"), is_leaving=True)
    assert orders(pool(2), [member("b"), leaving, waiting("d")], given_up) == [], "it may still use it"
    assert orders(pool(2), [gave_up("a"), waiting("d")], given_up) == [JOIN_D], "no member is there"


def test_a_pod_that_has_joined_by_itself_gets_what_was_given_up_for_it_one_after_the_other() -> None:
    given_up = [GivenUp("id-a", "c"), GivenUp("id-b", "c")]
    assert orders(pool(2), [member("c"), waiting("d")], given_up) == [
        TakeOver(holder("c"), "id-a"),
        JOIN_D,
    ]
