"""The rules over what members did can fail, each for its own reason."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.sidecar.membership.rolling.history import Commit, History, Limits, Read, Start
from tests.sidecar.membership.rolling.table import lines, row_of
from tests.sidecar.membership.rolling.tenures import Cause, Did, Hit, Life
from tests.support.sidecar import Event

A, B = ("events", 0), ("events", 1)
LIMITS = Limits(clean_ms=1_000, round_ms=100, dead_ms=5_000)


def said(
    event: str,
    at_ms: int,
    generation: int,
    numbers: Sequence[int] = (),
    tenure: int = 0,
    incarnation: int = 7,
) -> Event:
    return {
        "event": event,
        "monotonic_ms": at_ms,
        "generation": generation,
        "incarnation": incarnation,
        "partitions": {"events": list(numbers)} if numbers else {},
        "tenure": tenure,
    }


def moves() -> History:
    """
    `one` has both; `two` comes and gets B; `one` is frozen and loses A; it is killed when it has A again.

    In the end `two` is told to stop, and `three` gets both.
    """
    one = Life(
        "one",
        "one",
        [
            *(said("joined", 0, 1), said("assigned", 0, 1, (0, 1), 1)),
            *(said("joined", 100, 2), said("revoking", 100, 2, (1,)), said("revoked", 110, 2, (1,))),
            *(said("joined", 200, 3), said("assigned", 200, 3)),
            said("lost", 5_000, 3, (0,)),
            *(said("joined", 5_300, 5), said("assigned", 5_300, 5)),
            *(said("joined", 5_500, 6), said("assigned", 5_500, 6, (0,), 2)),
        ],
        [Hit(Did.STOP, 1_000), Hit(Did.CONT, 5_000), Hit(Did.KILL, 6_000)],
    )
    two = Life(
        "two",
        "two",
        [
            *(said("joined", 100, 2), said("assigned", 100, 2)),
            *(said("joined", 200, 3), said("assigned", 200, 3, (1,), 1)),
            *(said("joined", 4_000, 4), said("assigned", 4_000, 4, (0,), 2)),
            *(said("joined", 5_300, 5), said("revoking", 5_300, 5, (0,)), said("revoked", 5_320, 5, (0,))),
            *(said("joined", 5_500, 6), said("assigned", 5_500, 6)),
            *(said("joined", 9_000, 7), said("assigned", 9_000, 7, (0,), 3)),
            *(said("revoking", 9_500, 7, (0, 1)), said("revoked", 9_510, 7, (0, 1))),
        ],
        [Hit(Did.TERM, 9_500)],
    )
    three = Life("three", "three", [said("joined", 9_900, 8), said("assigned", 9_900, 8, (0, 1), 1)], [])
    return History(
        partitions=[A, B],
        limits=LIMITS,
        lives=[one, two, three],
        commits=[
            Commit("one", {A: 10, B: 20}, asked=1, answered=2, refused={}),
            Commit("one", {B: 19}, asked=4, answered=5, refused={B: "ILLEGAL_GENERATION"}, tenures={B: 1}),
            Commit("one", {A: 12}, asked=6),
            Commit("two", {A: 14}, asked=8, answered=9, refused={}),
            Commit("one", {A: 9}, asked=10, answered=11, refused={A: "UNKNOWN_MEMBER_ID"}, tenures={A: 1}),
        ],
        reads=[Read("two", {B: 20}, asked=3), Read("two", {A: 10}, asked=7), Read("one", {A: 14}, asked=12)],
        starts=[
            Start("two", 1, B, 20, 20, ("one", 1)),
            Start("two", 2, A, 10, 12, ("one", 1)),
            Start("one", 2, A, 14, 14, ("two", 2)),
            Start("two", 3, A, 14, 18, ("one", 2)),
            Start("three", 1, A, 20, 20, ("two", 3)),
            Start("three", 1, B, 30, 30, ("two", 1)),
        ],
    )


def rules_broken(history: History) -> set[str]:
    return {fault.split(":")[0] for fault in history.faults()}


def changed(history: History, name: str, where: Mapping[str, object], **fields: object) -> History:
    """The events of one life that look like that, with other fields; each history has some."""
    lives = []
    for life in history.lives:
        events = [
            {**event, **fields} if life.name == name and where.items() <= event.items() else event
            for event in life.events
        ]
        lives.append(replace(life, events=events))
    assert lives != list(history.lives)
    return replace(history, lives=lives)


def without(history: History, name: str, where: Mapping[str, object]) -> History:
    """The events of one life that look like that were never told."""
    lives = [
        replace(
            life,
            events=[
                event for event in life.events if life.name != name or not where.items() <= event.items()
            ],
        )
        for life in history.lives
    ]
    assert lives != list(history.lives)
    return replace(history, lives=lives)


def test_a_good_history_breaks_no_rule() -> None:
    assert moves().faults() == []


def test_the_time_between_two_owners_is_shown_with_its_cause() -> None:
    gaps = [(gap.before.partition, gap.cause, gap.unowned_ms) for gap in moves().gaps]
    assert gaps == [
        (A, Cause.FROZEN, 3_000),
        (A, Cause.MOVED, 180),
        (A, Cause.KILLED, 3_000),
        (A, Cause.LEFT, 390),
        (B, Cause.MOVED, 90),
        (B, Cause.LEFT, 390),
    ]


def test_the_table_tells_how_often_how_long_and_what_was_done_twice() -> None:
    left, frozen = row_of(moves(), Cause.LEFT), row_of(moves(), Cause.FROZEN)
    assert (left.times, left.unowned_ms, left.limit_ms, left.repeats) == (1, [390, 390], 1_100, 0)
    assert (frozen.times, frozen.repeats, frozen.refused) == (1, 2, 1)
    assert (row_of(moves(), Cause.KILLED).repeats, row_of(moves(), Cause.MOVED).refused) == (4, 1)
    assert [line.split() for line in lines("both", moves())][2:4] == [
        ["SIGTERM", "1", "2", "390", "390", "1100", "0", "0"],
        ["kill", "-9", "1", "1", "3000", "3000", "5000", "4", "0"],
    ]


def test_a_partition_that_is_assigned_to_two_members_in_one_generation_is_found() -> None:
    kept = changed(moves(), "two", {"event": "assigned", "generation": 3}, partitions={"events": [0, 1]})
    assert "assigned_to_two" in rules_broken(kept), "the other one keeps it, and is not told so again"
    given = changed(moves(), "three", {"event": "assigned"}, generation=6)
    assert "assigned_to_two" in rules_broken(given)


def test_a_plan_that_leaves_a_partition_with_who_must_give_it_up_is_found() -> None:
    kept = without(moves(), "one", {"event": "revoking"})
    kept = changed(kept, "one", {"event": "revoked"}, event="assigned", partitions={})
    two = changed(kept, "two", {"event": "assigned", "generation": 2}, partitions={"events": [1]})
    assert {"assigned_to_two", "two_owners"} <= rules_broken(two)


def test_the_plan_takes_away_what_it_has_revoked_before_it_assigns() -> None:
    early = changed(moves(), "two", {"event": "assigned", "generation": 3}, partitions={})
    early = changed(
        early, "two", {"event": "assigned", "generation": 2}, partitions={"events": [1]}, tenure=1
    )
    assert "assigned_to_two" not in rules_broken(early)
    assert "two_owners" in rules_broken(early), "but it may have it only when the other one has let go"


def test_two_owners_at_a_time_are_found() -> None:
    early = changed(moves(), "two", {"event": "assigned", "generation": 3}, monotonic_ms=109)
    assert rules_broken(early) == {"two_owners"}
    never_over = without(moves(), "two", {"event": "revoked", "generation": 7})
    assert "two_owners" in rules_broken(never_over)


def test_who_is_frozen_or_killed_has_nothing_from_then_on() -> None:
    good = moves()
    for at_ms in (4_001, 5_501):
        one, *others = good.lives
        hits = [Hit(did, 4_001 if at_ms == 4_001 and did is Did.STOP else was) for did, was in one.hits]
        hits = [Hit(did, 8_999 + 2 if at_ms == 5_501 and did is Did.KILL else was) for did, was in hits]
        late = replace(good, lives=[replace(one, hits=hits), *others])
        assert rules_broken(late) == {"two_owners"}


def test_another_incarnation_in_one_generation_is_found() -> None:
    other = changed(moves(), "two", {"event": "assigned", "generation": 3}, incarnation=8)
    assert rules_broken(other) == {"two_incarnations"}
    unknown = changed(moves(), "three", {"event": "assigned"}, incarnation=-1)
    assert rules_broken(unknown) == {"two_incarnations"}


def test_a_partition_that_nobody_has_in_the_end_is_found() -> None:
    one, two, _ = moves().lives
    assert "without_an_owner" in rules_broken(replace(moves(), lives=[one, two], starts=[]))
    assert "without_an_owner" in rules_broken(replace(moves(), partitions=[A, B, ("events", 2)]))


@pytest.mark.parametrize(
    "just_enough", [Limits(290, 100, 3_000), Limits(190, 200, 3_000)], ids=["one round", "slow rounds"]
)
def test_a_partition_that_is_unowned_too_long_is_found(just_enough: Limits) -> None:
    good = replace(moves(), limits=just_enough)
    assert good.faults() == []
    for name in ("clean_ms", "round_ms", "dead_ms"):
        less = replace(just_enough, **{name: getattr(just_enough, name) - 1})
        assert rules_broken(replace(good, limits=less)) == {"unowned_too_long"}


def test_a_member_that_loses_all_for_no_reason_is_found() -> None:
    lost = changed(moves(), "one", {"event": "revoked"}, event="lost")
    assert rules_broken(lost) == {"lost_for_nothing"}


def test_a_member_that_was_frozen_and_has_not_lost_everything_is_found() -> None:
    assert "kept_while_frozen" in rules_broken(without(moves(), "one", {"event": "lost"}))
    some = changed(moves(), "one", {"event": "lost"}, partitions={"events": [1]})
    assert "kept_while_frozen" in rules_broken(some)
    late = changed(moves(), "one", {"event": "lost"}, monotonic_ms=5_400)
    assert "kept_while_frozen" in rules_broken(late), "it said something else before"
    one, *others = moves().lives
    silent = replace(one, events=[event for event in one.events if event["monotonic_ms"] < 5_000])
    assert "kept_while_frozen" in rules_broken(replace(moves(), lives=[silent, *others], starts=[]))


def with_commit(history: History, index: int, commit: Commit) -> History:
    commits = list(history.commits)
    commits[index] = commit
    return replace(history, commits=commits)


def test_a_late_commit_that_is_taken_or_not_answered_is_found() -> None:
    good = moves()
    late = good.commits[4]
    assert "late_commit_taken" in rules_broken(with_commit(good, 4, replace(late, refused={})))
    unheard = replace(late, answered=None, refused=None)
    assert rules_broken(with_commit(good, 4, unheard)) == {"late_commit_taken"}


def test_an_acknowledged_offset_that_is_read_lower_is_found() -> None:
    good = moves()
    low = replace(good, reads=[*good.reads, Read("one", {A: 10}, asked=12)])
    assert rules_broken(low) == {"lowered"}
    before = replace(good, reads=[*good.reads, Read("one", {A: 10}, asked=8)])
    assert rules_broken(before) == set(), "nobody was told of more when it was asked"


def test_an_offset_that_nobody_committed_is_found() -> None:
    good = moves()
    for offsets in ({A: 15}, {A: 20}):
        strange = replace(good, reads=[*good.reads, Read("one", offsets, asked=12)])
        assert rules_broken(strange) == {"never_committed"}


def with_start(history: History, index: int, **fields: int) -> History:
    starts = list(history.starts)
    starts[index] = replace(starts[index], **fields)  # type: ignore[arg-type]
    return replace(history, starts=starts)


@pytest.mark.parametrize("index", [0, 2, 4, 5])
def test_work_that_is_done_again_after_a_clean_end_is_found(index: int) -> None:
    assert rules_broken(with_start(moves(), index, offset=13)) == {"repeated"}


@pytest.mark.parametrize("index", range(6))
def test_work_that_nobody_has_done_is_found(index: int) -> None:
    assert rules_broken(with_start(moves(), index, offset=40)) == {"skipped"}
