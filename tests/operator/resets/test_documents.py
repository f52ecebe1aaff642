"""A plan that is written into ConfigMaps is read as it was; one that was changed by hand is refused with its place."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_operator.overview.assignment import Partition
from rota_operator.resets.documents import PARTS_MAX, TABLE, documents_of, part_count, plan_in, plan_name
from rota_operator.resets.plan import Plan, PlannedOffset, ResetRefused

PLAN = Plan(
    "shop.orders",
    (
        PlannedOffset(Partition("orders", 0), 40, 10, 2_000, 1_000),
        PlannedOffset(Partition("orders", 1), None, 5, remark='70 is "out of range", really'),
    ),
    skipped=0,
    repeated=30,
    topic_ids={"orders": "1f"},
)
NAME = "orders-reset-replay-1"


def written(plan: Plan = PLAN) -> list[dict[str, str]]:
    return [dict(each.data) for each in documents_of(plan, NAME, lambda at_ms: f"@{at_ms}")]


def test_a_plan_is_a_table_that_people_read() -> None:
    (data,) = written()
    assert data[TABLE].splitlines() == [
        "topic,partition,oldOffset,newOffset,oldTime,newTime,remark",
        "orders,0,40,10,@2000,@1000,",
        'orders,1,,5,,,"70 is ""out of range"", really"',
    ]
    assert (data["groupId"], data["repeatedRecords"], data["part"]) == ("shop.orders", "30", "1/1")
    assert plan_in(NAME, [data], "shop.orders", PLAN.hash).offsets == PLAN.offsets


def test_a_plan_of_200_000_partitions_is_in_several_config_maps() -> None:
    rows = tuple(PlannedOffset(Partition("t" * 200, number), 1, 2) for number in range(20_000))
    plan = Plan("g", rows, 20_000, 0)
    documents = documents_of(plan, NAME, str)
    assert [each.name for each in documents][:2] == [NAME, f"{NAME}-2"]
    assert all(sum(map(len, each.data.values())) < 1_000_000 for each in documents)
    parts = [each.data for each in documents]
    assert part_count(NAME, parts[0]) == len(parts) > 3
    assert plan_in(NAME, parts, "g") == plan
    with pytest.raises(ResetRefused, match=f"ConfigMap {NAME}-2 with the plan does not exist"):
        plan_in(NAME, [parts[0], None, *parts[2:]], "g")
    for broken in ([parts[0], parts[2], *parts[1:]], parts[1:]):
        with pytest.raises(ResetRefused):
            plan_in(NAME, broken, "g")


def changed(**values: str) -> Mapping[str, str]:
    return {**written()[0], **values}


def edited(was: str, becomes: str) -> Mapping[str, str]:
    return changed(**{TABLE: written()[0][TABLE].replace(was, becomes)})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "does not exist"),
        ({"settings.json": "{}"}, "is not a plan of an offset reset"),
        (changed(groupId="shop.other"), "is a plan of group shop.other"),
        (edited(",40,10,", ",40,11,"), "its hash is another one"),
        (edited("orders,0", "orders,7"), "its hash is another one"),
        (edited(",40,10,", ",40,ten,"), "line 2: newOffset must be an integer from 0; got 'ten'"),
        (edited(",40,10,", ",40,-1,"), "newOffset must be an integer from 0"),
        (edited("oldOffset", "old"), "the first line of plan.csv must be"),
        (edited("orders,0,40,10,@2000,@1000,", "orders,0,40"), "line 2 of plan.csv must have 7 values"),
        (changed(planHash="0" * 64), "its hash is another one"),
        (changed(repeatedRecords="many"), "repeatedRecords must be an integer"),
        (changed(topicIds="[]"), "topicIds must be an object"),
        (changed(part="2/2"), "is part of another plan"),
    ],
)
def test_a_plan_that_was_edited_is_refused_with_its_line(data: Mapping[str, str] | None, said: str) -> None:
    with pytest.raises(ResetRefused, match=re.escape(said)) as refused:
        plan_in(NAME, [data], "shop.orders")
    assert NAME in str(refused.value)


def test_another_plan_than_that_of_the_dry_run_is_refused() -> None:
    with pytest.raises(ResetRefused, match="was changed after the plan was made"):
        plan_in(NAME, written(), "shop.orders", "0" * 64)
    with pytest.raises(ResetRefused, match="is not the first one"):
        part_count(NAME, changed(part="2/2"))


def test_a_plan_that_says_it_is_larger_than_any_can_be_is_refused() -> None:
    with pytest.raises(ResetRefused, match="is the first one of 251, and a plan has at most 250"):
        part_count(NAME, changed(part="1/251"))
    lines = "orders,0,1,2,,,\n" * 200_001
    table = f"{written()[0][TABLE].splitlines()[0]}\n{lines}"
    with pytest.raises(ResetRefused, match="has a plan of more than 200000 partitions"):
        plan_in(NAME, [changed(**{TABLE: table})], "shop.orders")


def test_the_largest_plan_has_fewer_parts_than_are_read() -> None:
    """As many topics as partitions, with the longest names, offsets and remarks; a tenth of them."""
    names = (f"{'t' * 243}{number:06d}" for number in range(20_000))
    remark = f"{10**18 - 1} is out of range; using the log start"
    rows = tuple(
        PlannedOffset(Partition(name, 199_999), 10**18 - 1, 10**18 - 1, 1, 1, remark) for name in names
    )
    topic_ids = {row.partition.topic: "f" * 32 for row in rows}
    plan = Plan("g", rows, 0, 0, topic_ids)
    parts = documents_of(plan, NAME, lambda at_ms: "2026-11-26T00:00:00Z")
    assert all(sum(map(len, each.data.values())) < 1_000_000 for each in parts)
    assert len(parts) * 10 <= PARTS_MAX
    assert plan_in(NAME, [each.data for each in parts], "g").hash == plan.hash


NAMES = st.text(min_size=1, max_size=253)


@given(NAMES, NAMES)
def test_each_request_id_has_a_name_of_its_own_that_kubernetes_accepts(one: str, other: str) -> None:
    name = plan_name("orders", one, "undo")
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,250}[a-z0-9])?", name)
    assert len(f"{plan_name('o' * 63, one, 'undo')}-999") <= 253
    assert (one == other) is (plan_name("orders", one) == plan_name("orders", other))


def test_a_usual_request_id_is_in_the_name_as_it_is() -> None:
    assert plan_name("orders", "replay-1") == NAME
