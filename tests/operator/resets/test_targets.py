"""A target is the same offset that Kafka's tool would set; out of the log it is the nearest one, and the plan says so."""

import pytest

from rota_operator.overview.assignment import Partition
from rota_operator.resets.plan import Plan, ResetRefused, undo_of
from rota_operator.resets.targets import (
    LogRange,
    Lookup,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToPlan,
    ToTime,
    current_offsets,
    resolve,
    time_problem,
    topics_of,
)

A, B, C = (Partition("orders", number) for number in range(3))
# Partition C has no committed offset.
LOOKUP = Lookup(
    "shop.orders",
    ranges={A: LogRange(10, 100), B: LogRange(0, 50), C: LogRange(5, 5)},
    committed={A: 40, B: 50},
    at_time={A: 30, B: -1},
    topic_ids={"orders": "1f"},
)


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (ToEarliest(), (10, 0, 5)),
        (ToLatest(), (100, 50, 5)),
        (ToOffset(20), (20, 20, 5)),
        (ToTime(1_000), (30, 50, 5)),
    ],
    ids=str,
)
def test_a_target_is_an_offset_in_each_partition(target: Target, offsets: tuple[int, ...]) -> None:
    plan = resolve(target, LOOKUP)
    assert tuple(row.new for row in plan.rows) == offsets
    assert [row.old for row in plan.rows] == [40, 50, None]


def test_a_shift_moves_committed_offsets_and_leaves_out_partitions_without_one() -> None:
    plan = resolve(ShiftBy(-45), LOOKUP)
    assert plan.offsets == {A: 10, B: 5}
    assert [row.remark for row in plan.rows] == ["-5 is out of range; using the log start", ""]
    assert (plan.skipped, plan.repeated) == (0, 30 + 45)


def test_out_of_the_log_is_the_nearest_offset_and_it_is_said() -> None:
    rows = resolve(ToOffset(70), LOOKUP).rows
    assert [(row.new, row.remark) for row in rows] == [
        (70, ""),
        (50, "70 is out of range; using the log end"),
        (5, "70 is out of range; using the log end"),
    ]
    assert resolve(ToTime(1), LOOKUP).rows[1].remark == "no record at or after this time; using the log end"


def test_records_that_the_log_has_no_more_are_not_counted_as_skipped() -> None:
    lookup = Lookup("g", {A: LogRange(50, 100)}, {A: 40})
    plan = resolve(ToLatest(), lookup)
    assert (plan.skipped, plan.repeated) == (50, 0)


def test_a_plan_is_executed_for_the_log_of_now() -> None:
    plan = resolve(ToEarliest(), LOOKUP)
    later = Lookup(
        "shop.orders", {**LOOKUP.ranges, A: LogRange(25, 120)}, {A: 44, B: 50}, topic_ids={"orders": "1f"}
    )
    assert current_offsets(plan, later) == {A: 25, B: 0, C: 5}
    again = resolve(ToPlan(plan), later)
    assert again.offsets == {A: 25, B: 0, C: 5}
    assert again.rows[0].remark == "10 is out of range; using the log start"


@pytest.mark.parametrize(
    ("lookup", "said"),
    [
        (Lookup("shop.other", LOOKUP.ranges, {}), "is one of group shop.orders, not of shop.other"),
        (
            Lookup("shop.orders", LOOKUP.ranges, {}, topic_ids={"orders": "2e"}),
            "was deleted and created again",
        ),
        (Lookup("shop.orders", {A: LogRange(0, 200)}, {}), "orders-1, orders-2"),
        (
            Lookup("shop.orders", {**LOOKUP.ranges, A: LogRange(0, 7)}, {}),
            "sets orders-0 to 10, after the log end 7",
        ),
    ],
    ids=["group", "topic id", "partitions", "log end"],
)
def test_a_plan_for_something_else_is_refused(lookup: Lookup, said: str) -> None:
    plan = resolve(ToEarliest(), LOOKUP)
    for check in (lambda: current_offsets(plan, lookup), lambda: resolve(ToPlan(plan), lookup)):
        with pytest.raises(ResetRefused, match=said):
            check()


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ResetRefused, match="does not consume topic payments"):
        topics_of(["payments"], ["orders"])
    with pytest.raises(ResetRefused, match="do not exist"):
        topics_of([], [])
    assert list(topics_of([], ["orders"])) == ["orders"]
    with pytest.raises(ResetRefused, match=r"to\.datetime is in the future"):
        time_problem("datetime", 2_001, 2_000)
    time_problem("datetime", 2_000, 2_000)
    with pytest.raises(ResetRefused, match="no partition of the reset has a committed offset"):
        resolve(ShiftBy(1), Lookup("g", LOOKUP.ranges, {}))
    with pytest.raises(ResetRefused, match="has no partitions"):
        resolve(ToEarliest(), Lookup("g", {}, {}))


def test_more_partitions_than_a_group_may_have_are_refused() -> None:
    many = {Partition("orders", number): LogRange(0, 1) for number in range(200_001)}
    with pytest.raises(ResetRefused, match="more than 200000"):
        resolve(ToEarliest(), Lookup("g", many, {}))


def test_the_undo_plan_brings_back_every_offset_that_was_committed() -> None:
    plan = resolve(ToEarliest(), LOOKUP)
    undo = undo_of(plan, {A: 44, B: 50})
    assert undo.offsets == {A: 44, B: 50}
    assert [row.old for row in undo.rows] == [10, 0]
    assert (undo.skipped, undo.repeated) == (34 + 50, 0)
    assert undo.group_id == plan.group_id


def test_the_hash_covers_what_is_executed() -> None:
    plan = resolve(ToEarliest(), LOOKUP)
    assert plan.hash == resolve(ToEarliest(), LOOKUP).hash
    others = (
        resolve(ToLatest(), LOOKUP),
        Plan("other", plan.rows, 0, 0, plan.topic_ids),
        Plan(plan.group_id, plan.rows, 0, 0, {"orders": "2e"}),
        Plan(plan.group_id, plan.rows[:2], 0, 0, plan.topic_ids),
    )
    assert plan.hash not in {other.hash for other in others}
