"""Groups come and go while the operator runs, and partitions that vanish are forgotten."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import DescribedMember, Description
from rota_operator.overview.group import REPORTER_KEPT_MS, EngineAccess
from rota_operator.overview.offsets import OFFSETS_VALID_MS, QUERIED_VALID_MS, PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.reports import REPORT_VALID_MS
from rota_operator.overview.view import EventKind, GroupView, PartitionView
from rota_proto.fleet.v1 import fleet_pb2 as pb

NOW = 1_000_000
KEY, OTHER = "shop/orders", "billing/orders"
ONLY_REPORTS = EngineAccess(describes=False, has_offsets=False)


def orders(number: int) -> Partition:
    return Partition("orders", number)


def report(
    pod: str,
    *partitions: pb.PartitionReport | int,
    state: pb.MemberState.ValueType = pb.MEMBER_STATE_STABLE,
    generation: int = 1,
    incarnation: int = 0,
) -> pb.SidecarReport:
    return pb.SidecarReport(
        group_id="orders",
        sidecar=pod,
        member=pb.MemberReport(
            member_id=f"{pod}-id", state=state, generation_id=generation, incarnation=incarnation
        ),
        partitions=[
            pb.PartitionReport(topic="orders", partition=each) if isinstance(each, int) else each
            for each in partitions
        ],
    )


def view_of(overview: Overview, key: str = KEY, now_ms: int = NOW) -> GroupView:
    return next(each for each in overview.view((), now_ms).groups if each.name == key)


def by_number(view: GroupView) -> Mapping[int, PartitionView]:
    return {each.partition: each for each in view.partitions}


def owners(view: GroupView) -> Mapping[int, str | None]:
    return {each.partition: each.owner for each in view.partitions}


def stable(members: Mapping[str, Sequence[int]], generation: int = 1) -> Description:
    described = [
        DescribedMember(f"{pod}-id", pod, frozenset(map(orders, numbers))) for pod, numbers in members.items()
    ]
    return Description("orders", "Stable", generation, "range", described)


def test_groups_come_and_go() -> None:
    overview = Overview("coordinator:7070")
    assert overview.view((), NOW).groups == ()
    overview.add_group(KEY, "orders", KEY)
    assert [each.name for each in overview.view((), NOW).groups] == [KEY]
    overview.remove_group(KEY)
    overview.remove_group(KEY)
    overview.add_report(report("orders-0", 0), NOW, KEY)
    assert overview.view((), NOW).groups == ()


def test_a_group_that_is_added_again_begins_anew() -> None:
    overview = Overview("coordinator:7070")
    overview.add_group(KEY, "orders", KEY)
    overview.update_description(stable({"orders-0": [0]}), NOW, KEY)
    overview.add_group(KEY, "orders", KEY)
    view = view_of(overview)
    assert (view.state, view.partitions, view.history) == ("Unknown", (), ())


def test_groups_of_one_id_in_two_namespaces_do_not_mix() -> None:
    overview = Overview("")
    for key in (KEY, OTHER):
        overview.add_group(key, "orders", key)
    overview.update_description(stable({"orders-0": [0]}, generation=3), NOW, KEY)
    overview.update_description(stable({"orders-0": [0, 1]}, generation=7), NOW, OTHER)
    overview.add_report(report("orders-0", 0, generation=3), NOW, KEY)
    overview.update_offsets(KEY, {orders(0): PartitionOffsets(1, 0, 5)}, NOW)
    overview.record_event(OTHER, EventKind.SCALE, "scaled", NOW)
    ours, theirs = view_of(overview, KEY), view_of(overview, OTHER)
    assert (ours.generation, theirs.generation) == (3, 7)
    assert (ours.lag_records, theirs.lag_records) == (4, None)
    assert ours.members[0].state == "Stable"
    assert theirs.members[0].state == "Other client", (
        "a pod of this name in another namespace reports nothing here"
    )
    assert "scaled" not in [each.message for each in ours.history]


def test_partitions_that_the_engine_lists_no_longer_are_forgotten() -> None:
    overview = Overview("coordinator:7070", [("orders", KEY)])
    overview.update_description(stable({"orders-0": [0, 1, 2]}), NOW)
    known = PartitionOffsets(1, 0, 5)
    overview.update_offsets("orders", dict.fromkeys(map(orders, range(3)), known), NOW)
    overview.update_description(stable({"orders-0": [0]}, generation=2), NOW)
    overview.update_offsets("orders", {orders(0): known, orders(1): known}, NOW)
    assert owners(view_of(overview)) == {0: "orders-0", 1: None}


def test_partitions_stay_while_the_engine_does_not_answer() -> None:
    overview = Overview("coordinator:7070", [("orders", KEY)])
    overview.update_offsets("orders", {orders(0): PartitionOffsets(1, 0, 5)}, NOW)
    view = view_of(overview, now_ms=NOW + OFFSETS_VALID_MS + 1)
    assert (owners(view), view.lag_records) == ({0: None}, None)


@pytest.mark.parametrize(
    ("reports", "state", "generation", "expected"),
    [
        ([], "Unknown", None, {}),
        ([report("a", 0, 1)], "Stable", 1, {0: "a", 1: "a"}),
        ([report("a", 0), report("b", 1)], "Stable", 1, {0: "a", 1: "b"}),
        ([report("a", 0, generation=2), report("b", 0, 1)], "PreparingRebalance", 2, {0: "a", 1: "b"}),
        ([report("b", 0, 1), report("a", 0, generation=2)], "PreparingRebalance", 2, {0: "a", 1: "b"}),
        ([report("a", 0, generation=9), report("b", 0, incarnation=1)], "PreparingRebalance", 1, {0: "b"}),
        ([report("a", 0), report("b", state=pb.MEMBER_STATE_JOINING)], "PreparingRebalance", 1, {0: "a"}),
        ([report("a", 0, state=pb.MEMBER_STATE_REVOKING)], "PreparingRebalance", 1, {0: "a"}),
        ([report("a", 0), report("b", state=pb.MEMBER_STATE_SYNCING)], "CompletingRebalance", 1, {0: "a"}),
        ([report("a", 0), report("b", state=pb.MEMBER_STATE_DOWN)], "Stable", 1, {0: "a"}),
        ([report("a", state=pb.MEMBER_STATE_DISCOVER)], "Unknown", None, {}),
        ([report("a", state=pb.MEMBER_STATE_STOPPED)], "Unknown", None, {}),
        ([report("a", 0), report("a", state=pb.MEMBER_STATE_STOPPED)], "Unknown", None, {0: None}),
    ],
)
def test_without_an_engine_the_reports_describe_the_group(
    reports: Sequence[pb.SidecarReport],
    state: str,
    generation: int | None,
    expected: Mapping[int, str | None],
) -> None:
    overview = Overview("")
    overview.add_group(KEY, "orders", KEY, ONLY_REPORTS)
    for each in reports:
        overview.add_report(each, NOW, KEY)
    view = view_of(overview)
    assert (view.state, view.generation, owners(view)) == (state, generation, expected)


def from_reports(*reports: pb.SidecarReport, now_ms: int = NOW) -> Overview:
    overview = Overview("")
    overview.add_group(KEY, "orders", KEY, ONLY_REPORTS)
    for each in reports:
        overview.add_report(each, now_ms, KEY)
    return overview


def test_members_are_the_sidecars_that_take_part() -> None:
    overview = from_reports(report("a", 0), report("b", state=pb.MEMBER_STATE_JOINING))
    assert [(each.name, each.member_id, each.state) for each in view_of(overview).members] == [
        ("a", "a-id", "Stable"),
        ("b", "b-id", "Joining"),
    ]


def test_a_silent_sidecar_keeps_its_partitions_until_a_later_generation() -> None:
    overview = from_reports(report("a", 0), report("b", 1))
    later_ms = NOW + REPORT_VALID_MS + 1
    overview.add_report(report("a", 0), later_ms, KEY)
    view = view_of(overview, now_ms=later_ms)
    assert (view.state, owners(view)) == ("Stable", {0: "a", 1: "b"})
    assert [(each.name, each.state) for each in view.members] == [("a", "Stable"), ("b", "Unknown")]
    assert by_number(view)[1].lag_records is None
    overview.add_report(report("a", 0, generation=2), later_ms, KEY)
    assert owners(view_of(overview, now_ms=later_ms)) == {0: "a", 1: None}


def test_a_group_of_which_no_sidecar_reports_is_unknown_and_not_empty() -> None:
    overview = from_reports(report("a", 0))
    view = view_of(overview, now_ms=NOW + REPORT_VALID_MS + 1)
    assert (view.state, view.generation, view.lag_records, owners(view)) == ("Unknown", None, None, {0: "a"})
    assert view.members[0].state == "Unknown"


def test_partitions_of_a_pod_that_is_gone_are_unowned() -> None:
    overview = from_reports(report("a", 0), report("b", 1))
    overview.remove_replica(KEY, "b")
    view = view_of(overview)
    assert (owners(view), view.unowned) == ({0: "a", 1: None}, 1)


def test_while_members_join_the_partitions_stay_with_their_owners() -> None:
    overview = from_reports(report("a", 0), report("b", 1))
    overview.add_report(report("a", state=pb.MEMBER_STATE_JOINING), NOW, KEY)
    assert owners(view_of(overview)) == {0: "a", 1: "b"}
    overview.add_report(report("a", 0, 1, generation=2), NOW, KEY)
    overview.add_report(report("b", generation=2), NOW, KEY)
    assert owners(view_of(overview)) == {0: "a", 1: "a"}


def test_rebalances_are_counted_by_reported_generations() -> None:
    overview = from_reports(report("a", 0, 1))
    overview.add_report(report("b", state=pb.MEMBER_STATE_JOINING), NOW + 100, KEY)
    overview.add_report(report("a", 0, generation=2), NOW + 200, KEY)
    overview.add_report(report("b", 1, generation=2), NOW + 300, KEY)
    view = view_of(overview, now_ms=NOW + 300)
    assert view.rebalances == 2
    newest = view.history[0]
    assert (newest.kind, newest.generation, newest.pause_ms, newest.moved) == (EventKind.REBALANCE, 2, 200, 1)
    assert newest.message == "b joined"


def test_sidecars_that_are_gone_are_forgotten() -> None:
    overview = from_reports(*(report(f"orders-{number}") for number in range(50)))
    later_ms = NOW + REPORTER_KEPT_MS + 1
    overview.add_report(report("new", 0), later_ms, KEY)
    assert [each.name for each in view_of(overview, now_ms=later_ms).members] == ["new"]


@pytest.mark.parametrize(
    ("fields", "records", "seconds"),
    [
        ({"committed": 4, "start": 0, "end": 10, "position": 9, "first_unresolved_timestamp_ms": NOW - 2_000}, 6, 2.0),
        ({"committed": 10, "start": 0, "end": 10, "position": 10}, 0, 0.0),
        ({"committed": 4, "start": 0, "end": 10, "position": 10}, 6, 0.0),
        ({"committed": 4, "start": 0, "end": 10, "position": 4}, 6, None),
        ({"committed": 4, "start": 6, "end": 10, "position": 10}, 4, 0.0),
        ({"start": 0, "end": 10, "position": 0}, None, None),
        ({}, None, None),
    ],
)  # fmt: skip
def test_without_an_engine_the_lag_is_that_of_the_owners_report(
    fields: Mapping[str, Any], records: int | None, seconds: float | None
) -> None:
    partition = pb.PartitionReport(topic="orders", partition=0, **fields)
    (view,) = view_of(from_reports(report("a", partition))).partitions
    assert (view.lag_records, view.lag_seconds) == (records, seconds)


def test_the_lag_of_a_partition_without_an_owner_is_looked_up_by_a_sidecar() -> None:
    owned = pb.PartitionReport(topic="orders", partition=0, committed=4, start=0, end=10, position=10)
    overview = from_reports(report("a", owned))
    found = {orders(0): PartitionOffsets(0, 0, 99), orders(1): PartitionOffsets(3, 0, 20, NOW - 5_000)}
    overview.update_queried(KEY, found, (), NOW)
    view = view_of(overview)
    assert owners(view) == {0: "a", 1: None}
    assert [(each.lag_records, each.lag_seconds) for each in view.partitions] == [(6, 0.0), (17, 5.0)]
    assert (view.lag_records, view.unowned) == (23, 1)
    later_ms = NOW + QUERIED_VALID_MS + 1
    overview.add_report(report("a", owned), later_ms, KEY)
    assert view_of(overview, now_ms=later_ms).lag_records is None


def test_partitions_that_a_sidecar_did_not_find_are_forgotten() -> None:
    overview = from_reports(report("a", 0, 1))
    overview.add_report(report("a", 0), NOW, KEY)
    assert owners(view_of(overview)) == {0: "a", 1: None}
    overview.update_queried(KEY, {}, {orders(1)}, NOW)
    assert owners(view_of(overview)) == {0: "a"}


def test_looked_up_offsets_are_dropped_once_an_owner_reports_the_partition() -> None:
    overview = from_reports(report("a", 0))
    overview.update_queried(KEY, {orders(1): PartitionOffsets(3, 0, 20)}, (), NOW)
    overview.add_report(report("a", 0, 1), NOW + 1, KEY)
    overview.add_report(report("a", 0), NOW + 2, KEY)
    view = by_number(view_of(overview, now_ms=NOW + 2))[1]
    assert (view.owner, view.lag_records) == (None, None)


def test_partitions_are_looked_up_that_have_no_owner_and_whose_offsets_the_engine_does_not_report() -> None:
    overview = from_reports(report("a", 0))
    overview.update_queried(KEY, {orders(each): PartitionOffsets(3, 0, 20) for each in range(3)}, (), NOW)
    assert overview.unowned(KEY, NOW) == {orders(1), orders(2)}
    # A silent sidecar keeps its partitions.
    assert overview.unowned(KEY, NOW + REPORT_VALID_MS + 1) == {orders(1), orders(2)}
    overview.add_group(KEY, "orders", KEY, EngineAccess(describes=True, has_offsets=False))
    overview.update_description(stable({"a": [0, 1]}), NOW, KEY)
    overview.update_description(stable({"a": [0]}), NOW, KEY)
    assert overview.unowned(KEY, NOW) == {orders(1)}
    overview.add_group(KEY, "orders", KEY)
    overview.update_offsets(KEY, {orders(0): PartitionOffsets(1, 0, 5)}, NOW)
    assert overview.unowned(KEY, NOW) == overview.unowned(OTHER, NOW) == frozenset()


def test_queries_do_not_replace_what_the_engine_says() -> None:
    overview = Overview("coordinator:7070", [("orders", KEY)])
    overview.update_offsets("orders", {orders(0): PartitionOffsets(1, 0, 5)}, NOW)
    overview.update_queried("orders", {orders(0): PartitionOffsets(0, 0, 99)}, (), NOW)
    assert view_of(overview).lag_records == 4
    assert view_of(overview, now_ms=NOW + OFFSETS_VALID_MS + 1).lag_records is None
