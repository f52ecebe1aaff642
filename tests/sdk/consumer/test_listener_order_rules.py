"""The rules for listeners of several processes find what they are for."""

import pytest

from tests.sdk.consumer.listener_rules import Event, Life, assigned_too_early, faults, revocations


def call(event: str, partitions: set[int], begun_ms: int, ended_ms: int | None = None) -> Event:
    ended_ms = begun_ms if ended_ms is None else ended_ms
    return {"event": event, "partitions": sorted(partitions), "begun_ms": begun_ms, "ended_ms": ended_ms}


CLOSED: Event = {"event": "closed"}
ROUND = [call("assigned", {0, 1}, 0), call("revoked", {1}, 10, 20), call("assigned", set(), 30)]


def test_a_partition_that_goes_from_one_to_another_is_as_it_should_be() -> None:
    first = Life("first", [*ROUND, call("revoked", {0}, 40), CLOSED])
    second = Life("second", [call("assigned", {1}, 20), call("assigned", {0}, 41)])
    assert faults([first, second], eager=False) == []


def test_what_is_given_before_its_owner_has_let_go_is_found() -> None:
    first, second = Life("first", ROUND), Life("second", [call("assigned", {1}, 19)])
    assert faults([first, second], eager=False) == [
        "1 was given to second at 19, and first had let go of it at 20"
    ]


def test_what_is_given_before_all_is_taken_is_found_where_rebalances_take_all() -> None:
    assert faults([Life("one", ROUND)], eager=True) == [
        "one was told that {1} were revoked while it had {0, 1}",
        "one was given set() while it had {0}",
    ]


@pytest.mark.parametrize("eager", [True, False])
def test_what_was_there_already_or_was_not_is_found(eager: bool) -> None:
    twice = [call("assigned", {0}, 0), call("assigned", {0}, 1)]
    assert faults([Life("one", twice)], eager=eager)[0] == "one was given {0} while it had {0}"
    never = [call("revoked", {0}, 0)]
    assert faults([Life("one", never)], eager=eager)[0] == (
        "one was told that {0} were revoked while it had set()"
    )


def test_who_is_killed_or_stands_still_has_nothing_from_then_on() -> None:
    killed = Life("killed", [call("assigned", {0}, 0)], killed_ms=50)
    frozen = Life(
        "frozen",
        [call("assigned", {1}, 0), call("lost", {1}, 90), call("assigned", {0}, 95)],
        frozen_ms=60,
        frozen_with=frozenset({1}),
    )
    heir = Life("heir", [call("assigned", {0}, 50), call("assigned", {1}, 60), call("revoked", {0}, 94)])
    assert faults([killed, frozen, heir], eager=False) == []
    early = Life("early", [call("assigned", {0}, 49), call("assigned", {1}, 59), call("revoked", {0}, 94)])
    assert faults([killed, frozen, early], eager=False) == [
        "0 was given to early at 49, and killed had let go of it at 50",
        "1 was given to early at 59, and frozen had let go of it at 60",
    ]


def test_a_lost_partition_is_a_fault_without_a_pause_and_missing_after_one() -> None:
    calls = [call("assigned", {0}, 0), call("lost", {0}, 1)]
    assert faults([Life("one", calls)], eager=False) == ["one was told that it lost {0}, and had lost set()"]
    revoked = [call("assigned", {0}, 0), call("revoked", {0}, 99)]
    life = Life("one", revoked, frozen_ms=10, frozen_with=frozenset({0}))
    assert faults([life], eager=False) == ["one was told that it lost set(), and had lost {0}"]


def test_a_clean_close_without_revocation_is_a_fault() -> None:
    assert faults([Life("one", [call("assigned", {0}, 0), CLOSED])], eager=False) == [
        "one ended in good order, and was not told that {0} went"
    ]


def test_a_record_that_is_not_the_one_that_was_sought_is_found() -> None:
    polled = {"event": "polled", "partition": 0, "sought": 7, "offset": 9}
    assert faults([Life("one", [call("assigned", {0}, 0), polled])], eager=False) == [
        "one sought 7 in 0, and got 9 first"
    ]


def of(generation: int, event: Event) -> Event:
    return {**event, "generation": generation}


def test_what_is_given_while_another_member_still_revokes_the_generation_before_is_found() -> None:
    first = Life("first", [of(1, call("assigned", {0}, 0)), of(1, call("revoked", {0}, 10, 30))])
    calls = [of(1, call("assigned", {1}, 0)), of(1, call("revoked", {1}, 10, 15))]
    late = Life("second", [*calls, of(2, call("assigned", {1}, 30))])
    assert assigned_too_early([first, late]) == []
    early = Life("second", [*calls, of(2, call("assigned", {1}, 29))])
    assert assigned_too_early([first, early]) == [
        "second was given {1} in generation 2 at 29, and first had let go of generation 1 at 30"
    ]
    assert revocations([first, early]) == {1: 2}


def test_revocations_of_the_same_or_a_later_generation_are_no_fault() -> None:
    first = Life("first", [of(2, call("assigned", {0}, 0)), of(2, call("revoked", {0}, 10, 30))])
    second = Life("second", [of(2, call("assigned", {1}, 5))])
    third = Life("third", [of(1, call("assigned", {1}, 20))])
    assert assigned_too_early([first, second, third]) == []
