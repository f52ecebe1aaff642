"""Each rule over what members did finds what breaks it, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.sidecar.delivery.rounds.engine import Position
from tests.sidecar.delivery.rounds.gaps import gaps_of
from tests.sidecar.delivery.rounds.history import Done, Gap, History, Hit, done_by, lines, values_of
from tests.sidecar.delivery.rounds.source import Look
from tests.support.app import Event

A, B = 0, 1
RECORDS = {
    Position(partition, offset): f"{partition}.{offset}" for partition in (A, B) for offset in range(4)
}
KILL = Hit("kill", 50, frozenset({A}), {A: 1})


def history(done: Sequence[tuple[int, int, int]], *, looks: Mapping[int, Mapping[int, int]] = {}) -> History:
    """`done` are a partition, an offset and a time; looks have one, too."""
    return History(
        RECORDS,
        [Done(Position(partition, offset), "one", at_ms) for partition, offset, at_ms in done],
        [(position, value) for position, value in RECORDS.items() if position.partition == A],
        [Hit("restart", 0), KILL],
        [Look(at_ms, at_ms + 1, offsets) for at_ms, offsets in looks.items()],
    )


EVERYTHING = [(partition, offset, 10 * (offset + 1)) for partition in (A, B) for offset in range(4)]


def broken(history: History) -> set[str]:
    """The rules, by their first words."""
    return {fault.partition(":")[0] for fault in history.faults()}


def test_what_is_done_once_and_committed_later_breaks_no_rule() -> None:
    good = history(EVERYTHING, looks={0: {}, 20: {A: 2}, 45: {A: 4, B: 4}})
    assert good.faults() == []


def test_a_record_that_nobody_has_done_is_lost_unless_it_is_a_dead_letter() -> None:
    less = history(EVERYTHING[1:])
    assert broken(less) == {"lost"}
    assert broken(replace(less, dead=frozenset({Position(A, 0)}))) == set()


def test_a_dead_letter_is_not_done_as_well() -> None:
    assert broken(replace(history(EVERYTHING), dead=frozenset({Position(A, 0)}))) == {"another record"}


def test_a_record_with_another_value_is_found() -> None:
    assert broken(replace(history(EVERYTHING), values=[(Position(A, 0), "0.1")])) == {"another record"}


def test_only_uncommitted_records_of_a_killed_member_may_be_repeated() -> None:
    again = history([*EVERYTHING, (A, 1, 60), (A, 3, 60)])
    assert again.faults() == []
    assert (again.repeats("kill"), again.repeats("restart")) == (2, 0)
    assert broken(history([*EVERYTHING, (A, 0, 60)])) == {"repeated"}, "that was committed"
    assert broken(history([*EVERYTHING, (B, 3, 60)])) == {"repeated"}, "that was another one's"
    assert broken(history([*EVERYTHING, (A, 3, 45)])) == {"repeated"}, "that was before the kill"


def test_a_commit_that_goes_back_is_found() -> None:
    assert broken(history(EVERYTHING, looks={45: {A: 4}, 50: {A: 3}})) == {"lowered"}
    assert broken(history(EVERYTHING, looks={45: {A: 4}, 50: {}})) == {"lowered"}


def test_a_commit_after_the_records_that_are_done_is_found() -> None:
    assert broken(history(EVERYTHING, looks={28: {A: 3}})) == {"not done"}
    assert broken(history(EVERYTHING, looks={45: {A: 5}})) == {"not done"}, "nobody produced that"
    late = [(A, 0, 99), *EVERYTHING[1:]]
    assert broken(history(late, looks={45: {A: 4}})) == {"not done"}, "one below it was open"


def test_the_time_between_two_applications_belongs_to_what_was_done_before() -> None:
    both = frozenset({A, B})
    one = [
        (0, "assigned", both),
        (10, "revoking", frozenset({A})),
        (12, "revoked", frozenset({A})),
        (60, "ended", both),
    ]
    two = [(25, "assigned", frozenset({A})), (90, "assigned", both)]
    gaps = gaps_of([("one", one), ("two", two)], [Hit("restart", 0), KILL], {"restart": 15})
    assert gaps == [Gap("restart", A, 15, 15), Gap("kill", B, 30, None)]
    assert broken(replace(history(EVERYTHING), gaps=gaps)) == set()
    late = [gap._replace(unowned_ms=gap.unowned_ms + 1) for gap in gaps]
    assert broken(replace(history(EVERYTHING), gaps=late)) == {"unowned too long"}


def test_two_applications_that_have_a_partition_at_a_time_are_found() -> None:
    lives = [("one", [(0, "assigned", frozenset({A}))]), ("two", [(25, "assigned", frozenset({A}))])]
    gaps = gaps_of(lives, [], {})
    assert broken(replace(history(EVERYTHING), gaps=gaps)) == {"two at a time"}


def test_what_an_application_tells_is_read_record_by_record() -> None:
    event = {
        "event": "done",
        "verdict": "ACK",
        "topic": "t",
        "partition": 1,
        "first": 4,
        "last": 5,
        "value": "x",
    }
    events: list[Event] = [
        {**event, "monotonic_ms": 7},
        {**event, "verdict": "RETRY"},
        {**event, "topic": "u"},
        {"event": "begun"},
    ]
    assert list(done_by("one", "t", events)) == [
        Done(Position(1, 4), "one", 7),
        Done(Position(1, 5), "one", 7),
    ]
    assert list(values_of("t", events)) == [(Position(1, 4), "x")] * 2


def test_the_table_tells_how_often_how_long_and_what_was_repeated() -> None:
    again = replace(
        history([*EVERYTHING, (A, 1, 60)]), gaps=[Gap("restart", A, 15, 20), Gap("restart", B, 17, 20)]
    )
    title, _, *rows = lines("both", again)
    assert title == "both: 8 records, 8 done, 0 dead letters, 0 looks"
    assert [row.split() for row in rows] == [
        ["restart", "1", "0", "2", "16", "17", "20"],
        ["kill", "1", "1", "0", "-", "-", "-"],
    ]
