"""Changes that a reset would make, computed without any server."""

import pytest

from rota.records import TopicPartition
from rota_cli.clusters.model import Committed, OffsetRange, Topic
from rota_cli.commands.reset_plan import (
    KnownOffsets,
    OffsetChange,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    TopicSelection,
    ToTimestamp,
    parse_selection,
    plan,
    select_partitions,
)
from rota_cli.errors import Failure, NotFound, WrongUsage

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
KNOWN = KnownOffsets(
    committed={P0: Committed(50), P1: Committed(5)},
    ranges={P0: OffsetRange(10, 100), P1: OffsetRange(10, 100), P2: OffsetRange(0, 0)},
    at_time={P0: 60, P1: -1, P2: -1},
)
TOPICS = [Topic("orders", 3), Topic("returns", 1)]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ToEarliest(), [10, 10, 0]),
        (ToLatest(), [100, 100, 0]),
        (ToCurrent(), [50, 5, 0]),
        (ToOffset(70), [70, 70, 0]),
        (ToOffset(3), [10, 10, 0]),
        (ToTimestamp(1), [60, 100, 0]),
    ],
)
def test_every_partition_moves_to_the_target_or_to_the_nearest_offset(
    target: Target, expected: list[int]
) -> None:
    changes = plan(target, [P2, P0, P1], KNOWN)
    assert [change.partition for change in changes] == [P0, P1, P2]
    assert [change.new for change in changes] == expected
    assert [change.old for change in changes] == [50, 5, None]
    assert [change.by for change in changes] == [expected[0] - 50, expected[1] - 5, None]


def test_a_clamped_target_is_remarked() -> None:
    assert [change.remark for change in plan(ToOffset(70), [P0, P2], KNOWN)] == [
        "",
        "70 is out of range; using the log end",
    ]
    assert plan(ToTimestamp(1), [P1], KNOWN) == [
        OffsetChange(P1, 5, 100, "no record at or after this time; using the log end")
    ]


def test_the_current_offset_stays_and_is_the_log_end_where_there_is_none() -> None:
    assert plan(ToCurrent(), [P0, P1, P2], KNOWN) == [
        OffsetChange(P0, 50, 50),
        OffsetChange(P1, 5, 5),
        OffsetChange(P2, None, 0, "no committed offset; using the log end"),
    ]


def test_a_shift_counts_from_the_commit_and_stays_within_what_is_there() -> None:
    assert [change.new for change in plan(ShiftBy(-20), [P0, P1], KNOWN)] == [30, 10]
    assert [change.new for change in plan(ShiftBy(1000), [P0, P1], KNOWN)] == [100, 100]
    with pytest.raises(Failure, match=r"orders\[2\] has no committed offset to shift"):
        plan(ShiftBy(1), [P0, P2], KNOWN)


def test_a_choice_is_a_topic_or_some_of_its_partitions() -> None:
    assert parse_selection("orders") == TopicSelection("orders")
    assert parse_selection("orders:0,2") == TopicSelection("orders", (0, 2))
    for wrong in ("", ":1", "orders:", "orders:a", "orders:1,", "orders:-1"):
        with pytest.raises(WrongUsage, match="expected TOPIC, or TOPIC:0,2"):
            parse_selection(wrong)


def test_a_topic_means_all_its_partitions_and_for_a_shift_those_with_a_commit() -> None:
    assert select_partitions([TopicSelection("orders")], TOPICS, {P0}, shifts=False) == [P0, P1, P2]
    assert select_partitions([TopicSelection("orders")], TOPICS, {P0}, shifts=True) == [P0]
    assert select_partitions([TopicSelection("orders", [2])], TOPICS, {P0}, shifts=True) == [P2]
    assert select_partitions(
        [TopicSelection("orders", [1]), TopicSelection("orders", [1, 0])], TOPICS, set(), shifts=False
    ) == [P1, P0]
    assert select_partitions([TopicSelection("gone")], TOPICS, {P0}, shifts=False) == []
    with pytest.raises(NotFound, match=r"topic orders has no partition 3 \(it has 3\)"):
        select_partitions([TopicSelection("orders", [3])], TOPICS, set(), shifts=False)
