"""The plan of a micro-batch: admission, division among tasks, and the ranges that count when a batch begins or is replayed."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_spark import MembershipFailed, Settings, process
from rota_spark.columns import arrow_problem, installed_arrow
from rota_spark.core.limit import RECORDS_MIN, BatchLimit
from rota_spark.core.options import NAMES, InvalidOption, options_of
from rota_spark.core.plan import (
    EMPTY,
    Malformed,
    Plan,
    Range,
    admit,
    current,
    ends,
    pack,
    plan_in_log,
    plan_of,
)

starts_and_counts = st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 1_000)), max_size=12)


def ranges_of(drawn: list[tuple[int, int]]) -> list[Range]:
    return [Range("t", number, start, start + count) for number, (start, count) in enumerate(drawn)]


@given(starts_and_counts, st.integers(1, 5_000))
def test_what_is_admitted_is_as_much_as_there_is_up_to_the_limit(
    drawn: list[tuple[int, int]], records_max: int
) -> None:
    available = ranges_of(drawn)
    admitted = admit(available, records_max)
    assert sum(each.records for each in admitted) == min(records_max, sum(each.records for each in available))
    by_partition = {each.of: each for each in available}
    for each in admitted:
        assert each.records > 0
        assert each.start == by_partition[each.of].start
        assert each.end <= by_partition[each.of].end
    # No partition waits while another one gets more than its share.
    largest = max((each.records for each in admitted), default=0)
    got = {each.of: each.records for each in admitted}
    for each in available:
        assert got.get(each.of, 0) >= min(each.records, largest - 1)


@given(starts_and_counts, st.integers(1, 6))
def test_every_range_is_whole_in_exactly_one_task(drawn: list[tuple[int, int]], tasks: int) -> None:
    ranges = ranges_of(drawn)
    packed = pack(ranges, tasks)
    assert sorted(each for task in packed for each in task) == ranges
    assert len(packed) == min(tasks, len(ranges))
    assert all(packed)


def test_a_plan_is_what_the_checkpoint_says_and_plans_with_equal_ranges_differ() -> None:
    plan = Plan(7, (Range("t", 0, 3, 9), Range("t", 1, 0, 4)))
    written = json.dumps(plan.offset())
    assert plan_of(json.loads(written)) == plan
    assert plan_in_log(f'v1\n{{"batchWatermarkMs":0}}\n{written}') == plan
    assert json.dumps(Plan(8, plan.ranges).offset()) != written
    assert plan_of(EMPTY.offset()) == EMPTY


@pytest.mark.parametrize(
    "text", ["", "v1\n{}", "v1\n{}\n-", 'v1\n{}\n{"other": 1}', 'v1\n{}\n{"plan": 1, "ranges": [[1]]}']
)
def test_an_offset_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        plan_in_log(text)


def test_only_ranges_at_the_position_count_so_that_a_replayed_batch_changes_nothing() -> None:
    plan = Plan(1, (Range("t", 0, 3, 9), Range("t", 1, 0, 4), Range("t", 2, 5, 6)))
    first, second, third = plan.ranges
    assert current(plan, {("t", 0): 3, ("t", 1): 0, ("t", 2): 5}) == plan.ranges
    # 0 is committed, 1 was sought, 2 is another member's.
    assert current(plan, {("t", 0): 9, ("t", 1): 2}) == ()
    assert current(plan, {**ends([first, third]), ("t", 1): 0}) == (second,)


def test_batches_shrink_when_they_take_too_long_or_lose_their_partitions_and_grow_again() -> None:
    limit = BatchLimit(10_000, 30.0)
    limit.committed(10_000, 60.0)
    assert limit.records == 5_000
    limit.committed(5_000, 20.0)
    assert limit.records == 5_000
    limit.expelled(4_000)
    assert limit.records == 2_000
    for _ in range(10):
        limit.expelled(limit.records)
    assert limit.records == RECORDS_MIN
    for _ in range(10):
        limit.committed(limit.records, 1.0)
    assert limit.records == 10_000
    small = BatchLimit(10, 30.0)
    small.expelled(1)
    assert small.records == 10


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "", "many", "99999999999", "٣"])
def test_a_number_that_makes_no_sense_is_refused_with_its_bounds(value: str) -> None:
    with pytest.raises(InvalidOption, match=r"maxRecordsPerBatch is .*: use an integer from 1 to 10,000,000"):
        options_of({"bootstrapservers": "rota://x", "maxrecordsperbatch": value})


def test_an_unknown_option_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(InvalidOption) as refused:
        options_of({"topic": "orders"})
    assert all(name in str(refused.value) for name in NAMES)


def test_a_pyarrow_that_is_missing_or_too_old_is_named_with_the_one_that_is_needed() -> None:
    assert arrow_problem(installed_arrow()) == ""
    assert arrow_problem("18.0.0") == ""
    assert arrow_problem("17.0.1").startswith("pyarrow is 17.0.1, and Spark's workers need 18 or newer")
    assert arrow_problem(None).startswith("pyarrow is not installed, and Spark's workers need 18 or newer")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_records_per_batch": 0}, "max_records_per_batch is 0: use an integer from 1 to 10,000,000"),
        ({"input_partitions": -1}, "input_partitions is -1: use an integer from 0 to 10,000,000"),
        ({"max_batch_seconds": 0.0}, "max_batch_seconds is 0.0: use a number of seconds above 0"),
        ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_their_bounds(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        Settings(**({"bootstrap_servers": "rota://x"} | wrong))  # type: ignore[arg-type]


def test_a_query_without_a_sidecar_needs_a_group_and_topics() -> None:
    assert Settings(bootstrap_servers="rota://x").running_sidecar({"ROTA_SIDECAR": "unix:/s"}) == "unix:/s"
    with pytest.raises(InvalidOption, match="group_id or topics is empty: set them"):
        Settings(bootstrap_servers="rota://x", group_id="g").running_sidecar({})


@pytest.mark.parametrize(
    ("version", "found"), [(None, "pyarrow is not installed"), ("17.0.1", "pyarrow is 17.0.1")]
)
def test_a_query_does_not_start_without_the_pyarrow_that_its_executors_need(
    version: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["rota_spark.query"], "installed_arrow", lambda: version)
    settings = Settings(bootstrap_servers="rota://x", group_id="g", topics=["t"])
    with pytest.raises(MembershipFailed, match=f"{found}, and Spark's workers need 18 or newer"):
        # It is refused before it has a session, or a sidecar.
        process(None, lambda records: None, settings)  # type: ignore[arg-type]
