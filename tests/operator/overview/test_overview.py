"""The overview shows the latest reports: owners, lag, history. Everything else is unknown, not zero."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rota_operator.overview.assignment import Partition, partitions_of
from rota_operator.overview.description import DescribedMember, Description, description_of
from rota_operator.overview.group import OTHER_CLIENT, PARTITIONS_SHOWN
from rota_operator.overview.history import EVENTS_MAX
from rota_operator.overview.offsets import OFFSETS_VALID_MS, PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.reports import REPORT_VALID_MS
from rota_operator.overview.view import (
    EventKind,
    GroupView,
    MemberView,
    PartitionView,
    ReplicaView,
    WorkloadView,
)
from rota_proto.consumer_protocol import Malformed
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.fleet.v1 import fleet_pb2 as pb

GROUP = "shop.orders"
STABLE, PREPARING, COMPLETING, EMPTY = (
    admin.GROUP_STATE_STABLE,
    admin.GROUP_STATE_PREPARING_REBALANCE,
    admin.GROUP_STATE_COMPLETING_REBALANCE,
    admin.GROUP_STATE_EMPTY,
)
Numbers = Sequence[int]


def assignment(numbers: Numbers, topic: bytes = b"orders") -> bytes:
    """An assignment as leaders write it: version 3, one topic, user data that Rota does not know."""
    named = struct.pack(f">h{len(topic)}s", len(topic), topic)
    listed = struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return struct.pack(">hi", 3, 1) + named + listed + struct.pack(">i2s", 2, b"me")


class OverviewUnderTest:
    """One group with its workload of two, and a clock."""

    def __init__(self) -> None:
        self.overview = Overview("rota://127.0.0.1:7070", [(GROUP, "shop/orders")])
        self.now_ms = 1_000_000

    def describe(
        self,
        state: admin.GroupState.ValueType,
        generation: int,
        members: Mapping[str, Numbers],
        reason: str = "",
    ) -> None:
        """The coordinator speaks; assignments are told of stable groups alone."""
        described = [
            admin.DescribedMember(
                member_id=f"{name}-id",
                client_id=name,
                assignment=assignment(numbers) if state == STABLE else b"",
            )
            for name, numbers in members.items()
        ]
        group = admin.DescribedGroup(
            group_id=GROUP,
            state=state,
            generation_id=generation,
            protocol_name="cooperative-sticky" if state == STABLE else "",
            members=described,
        )
        response = admin.WatchGroupResponse(group=group, reason=reason)
        self.overview.update_description(description_of(response), self.now_ms)

    def report(
        self,
        name: str,
        *partitions: pb.PartitionReport,
        done: int = 0,
        generation: int = 1,
        member_id: str | None = None,
    ) -> None:
        """A sidecar speaks."""
        member_id = f"{name}-id" if member_id is None else member_id
        member = pb.MemberReport(
            member_id=member_id, state=pb.MEMBER_STATE_STABLE, generation_id=generation, records_done=done
        )
        response = pb.SidecarReport(group_id=GROUP, sidecar=name, member=member, partitions=partitions)
        self.overview.add_report(response, self.now_ms)

    def on_kafka(self, state: str, members: Mapping[str, Numbers]) -> None:
        """A broker describes the group: without a generation, and assignments of stable groups alone."""
        described = [
            DescribedMember(f"{name}-id", name, frozenset(Partition("orders", number) for number in numbers))
            for name, numbers in members.items()
        ]
        self.overview.update_description(Description(GROUP, state, None, "range", described), self.now_ms)

    def offsets(self, *partitions: PartitionOffsets) -> None:
        """The engine reports offsets, from partition 0 on."""
        found = {Partition("orders", number): each for number, each in enumerate(partitions)}
        self.overview.update_offsets(GROUP, found, self.now_ms)

    @property
    def group(self) -> GroupView:
        replicas = tuple(ReplicaView(f"orders-{number}", "Up", "Up", 0) for number in range(2))
        workload = WorkloadView("shop", "orders", "Deployment", GROUP, 2, 2, 0, replicas)
        (found,) = self.overview.view([workload], self.now_ms).groups
        return found

    def member(self, name: str) -> MemberView:
        return next(each for each in self.group.members if each.name == name)

    def partition(self, number: int) -> PartitionView:
        return next(each for each in self.group.partitions if each.partition == number)


def known(number: int, **changed: int | None) -> pb.PartitionReport:
    """A partition of which all is known."""
    said: dict[str, Any] = {"position": 100, "committed": 90, "start": 0, "end": 120}
    response: dict[str, Any] = {
        name: value for name, value in {**said, **changed}.items() if value is not None
    }
    return pb.PartitionReport(topic="orders", partition=number, arrival_rate=2.5, **response)


@pytest.fixture
def world() -> OverviewUnderTest:
    return OverviewUnderTest()


def test_before_the_first_report_nothing_is_known(world: OverviewUnderTest) -> None:
    group = world.group
    assert (group.state, group.generation, group.lag_records, group.lag_seconds) == (
        "Unknown",
        None,
        None,
        None,
    )
    assert [(each.name, each.state) for each in group.members] == [
        ("orders-0", "Unknown"),
        ("orders-1", "Unknown"),
    ]
    assert (group.partitions, group.history) == ((), ())


def test_members_have_what_they_were_assigned(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 4, {"orders-0": [0, 2], "orders-1": [1]})
    assert (world.group.state, world.group.generation) == ("Stable", 4)
    assert world.group.strategy == "cooperative-sticky"
    assert world.member("orders-0").partitions == ("orders-0", "orders-2")
    assert world.partition(1) == PartitionView("orders", 1, "orders-1")
    assert world.group.unowned == 0
    assert world.group.lag_records is None


def test_the_engine_says_how_far_behind_the_group_is_and_sidecars_what_they_do(
    world: OverviewUnderTest,
) -> None:
    world.describe(STABLE, 1, {"orders-0": [0], "orders-1": [1]})
    world.offsets(PartitionOffsets(90, 0, 120, world.now_ms - 4_500), PartitionOffsets(120, 0, 120))
    # Sidecars of exactly-once groups know nothing of commits; what one claims of them is not looked at.
    world.report("orders-0", known(0, committed=3, end=2_000, in_flight=4), done=7)
    world.report("orders-1", known(1, committed=None, position=120))
    first = world.partition(0)
    assert (first.owner, first.committed, first.start, first.end) == ("orders-0", 90, 0, 120)
    assert (first.lag_records, first.lag_seconds) == (30, 4.5)
    assert (first.position, first.in_flight, first.arrival_rate) == (100, 4, 2.5)
    assert (world.partition(1).lag_records, world.partition(1).lag_seconds) == (0, 0.0)
    assert (world.group.lag_records, world.group.lag_seconds) == (30, 4.5)
    assert world.group.arrival_rate == 5.0
    assert world.member("orders-0").records_done == 7


@pytest.mark.parametrize(
    ("offsets", "records", "seconds"),
    [
        pytest.param(PartitionOffsets(90, 0, 120, 998_000), 30, 2.0, id="uncommitted"),
        pytest.param(PartitionOffsets(120, 0, 120), 0, 0.0, id="all-is-committed"),
        pytest.param(PartitionOffsets(5, 100, 120, 999_000), 20, 1.0, id="retention-has-deleted-some"),
        pytest.param(PartitionOffsets(130, 0, 120), 0, 0.0, id="committed-beyond-the-end"),
        pytest.param(PartitionOffsets(119, 0, 120, markers_only=True), 1, 0.0, id="a-control-marker-alone"),
        pytest.param(PartitionOffsets(90, 0, 120, 1_000_500), 30, 0.0, id="a-producer-whose-clock-is-ahead"),
        pytest.param(PartitionOffsets(90, 0, 120), 30, None, id="timestamp-not-read-yet"),
        pytest.param(PartitionOffsets(None, 0, 120), None, None, id="nothing-committed"),
        pytest.param(PartitionOffsets(90, None, 120), None, None, id="start-unknown"),
        pytest.param(PartitionOffsets(90, 0, None), None, None, id="end-unknown"),
    ],
)
def test_lag_in_records_and_in_seconds_are_about_the_same_uncommitted_records(
    world: OverviewUnderTest, offsets: PartitionOffsets, records: int | None, seconds: float | None
) -> None:
    assert (offsets.lag_records, offsets.lag_seconds(world.now_ms)) == (records, seconds)


def test_a_part_that_is_missing_makes_the_sum_unknown(world: OverviewUnderTest) -> None:
    world.offsets(PartitionOffsets(90, 0, 120, world.now_ms), PartitionOffsets(None, 0, 120))
    assert world.partition(0).lag_records == 30
    assert (world.group.lag_records, world.group.lag_seconds) == (None, None)


def test_without_members_and_during_a_rebalance_the_lag_is_known(world: OverviewUnderTest) -> None:
    world.describe(EMPTY, 3, {})
    world.offsets(PartitionOffsets(90, 0, 120, world.now_ms - 1_000))
    assert (world.group.lag_records, world.group.lag_seconds, world.group.unowned) == (30, 1.0, 1)
    world.describe(PREPARING, 3, {"orders-0": []})
    assert (world.group.state, world.group.lag_records) == ("PreparingRebalance", 30)


def test_offsets_that_the_engine_has_not_confirmed_lately_are_unknown(world: OverviewUnderTest) -> None:
    world.offsets(PartitionOffsets(90, 0, 120, world.now_ms))
    world.now_ms += OFFSETS_VALID_MS
    assert world.partition(0).end == 120
    world.now_ms += 1
    assert world.partition(0) == PartitionView("orders", 0, None)
    assert world.group.lag_records is None


def test_a_group_on_kafka_has_its_state_and_owners_from_the_broker(world: OverviewUnderTest) -> None:
    world.on_kafka("Stable", {"orders-0": [0], "console": [1]})
    world.report("orders-0", known(0), generation=4)
    assert (world.group.state, world.group.strategy, world.group.generation) == ("Stable", "range", 4)
    assert [each.owner for each in world.group.partitions] == ["orders-0", "console"]
    assert (world.member("console").state, world.member("console").partitions) == (
        OTHER_CLIENT,
        ("orders-1",),
    )
    assert world.member("orders-1").state == "Unknown"
    assert world.group.unowned == 0


def test_without_a_generation_a_rebalance_is_a_round_or_other_owners(world: OverviewUnderTest) -> None:
    for _ in range(2):
        world.on_kafka("Stable", {"orders-0": [0, 1]})
    assert world.group.rebalances == 1
    world.on_kafka("Stable", {"orders-0": [0], "orders-1": [1]})
    assert (world.group.rebalances, world.group.history[0].message) == (2, "orders-1 joined")
    world.on_kafka("PreparingRebalance", {"orders-0": [], "orders-1": []})
    world.now_ms += 400
    world.on_kafka("Stable", {"orders-0": [0], "orders-1": [1]})
    assert (world.group.rebalances, world.group.history[0].pause_ms) == (3, 400)
    world.on_kafka("Stable", {"orders-0": [0], "orders-1": [1]})
    assert world.group.rebalances == 3


def test_what_a_sidecar_claims_gives_way_to_what_the_coordinator_says(world: OverviewUnderTest) -> None:
    world.report("orders-0", known(0), generation=1)
    world.describe(STABLE, 2, {"orders-1": [0]})
    assert (world.partition(0).owner, world.partition(0).in_flight) == ("orders-1", None)
    assert world.member("orders-0").partitions == ()


def test_a_member_has_the_name_of_the_pod_that_has_taken_it_over(world: OverviewUnderTest) -> None:
    """The coordinator describes the client that joined, until the next rebalance."""
    world.describe(STABLE, 1, {"orders-0": [0], "orders-1": [1]})
    rebalances = world.group.rebalances
    world.report("orders-0", known(0))
    world.report("orders-0", member_id="")
    world.report("orders-2", known(0), member_id="orders-0-id")
    member = world.member("orders-2")
    assert (member.member_id, member.client_id, member.partitions) == (
        "orders-0-id",
        "orders-2",
        ("orders-0",),
    )
    assert world.partition(0).owner == "orders-2"
    assert world.member("orders-0").partitions == ()
    assert world.overview.client_ids(GROUP) == frozenset({"orders-1", "orders-2"})
    assert world.group.rebalances == rebalances, "nothing has moved"
    world.now_ms += REPORT_VALID_MS + 1
    world.describe(STABLE, 1, {"orders-0": [0], "orders-1": [1]})
    assert world.partition(0).owner == "orders-2", "although it is silent"


def test_who_is_silent_is_unknown_and_so_is_what_it_has(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0], "orders-1": [1]})
    world.report("orders-0", known(0))
    world.report("orders-1", known(1))
    world.now_ms += REPORT_VALID_MS
    world.report("orders-1", known(1))
    assert world.member("orders-0").state == "Stable"
    world.now_ms += 1
    silent = world.member("orders-0")
    assert (silent.state, silent.records_done, silent.done_rate) == ("Unknown", None, None)
    assert world.partition(0) == PartitionView("orders", 0, "orders-0")
    assert world.group.lag_records is None


def test_a_partition_of_somebody_who_has_left_is_unowned(world: OverviewUnderTest) -> None:
    world.report("orders-0", known(0), known(1))
    world.overview.remove_replica(GROUP, "orders-0")
    assert [(each.owner, each.lag_records) for each in world.group.partitions] == [(None, None), (None, None)]
    assert world.group.unowned == 2


def test_the_later_generation_has_a_partition(world: OverviewUnderTest) -> None:
    world.report("orders-1", known(0), generation=2)
    world.report("orders-0", known(0), generation=1)
    assert world.partition(0).owner == "orders-1"


def test_rates_are_taken_over_some_seconds_and_begin_anew_with_the_sidecar(world: OverviewUnderTest) -> None:
    for done in (100, 150, 200):
        world.report("orders-0", known(0), done=done)
        world.now_ms += 1_000
    assert world.member("orders-0").done_rate == 50.0
    assert world.group.done_rate == 50.0
    world.report("orders-0", known(0), done=3)
    assert world.member("orders-0").done_rate is None


def test_a_rebalance_says_why_how_long_and_how_much(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0, 1, 2, 3]})
    world.now_ms += 1_000
    world.describe(PREPARING, 1, {"orders-0": []})
    world.now_ms += 200
    world.describe(PREPARING, 1, {"orders-0": [], "orders-1": []})
    world.now_ms += 300
    world.describe(STABLE, 2, {"orders-0": [0, 1], "orders-1": [2, 3]})
    rebalance, joined, *_ = world.group.history
    assert (rebalance.kind, rebalance.message) == (EventKind.REBALANCE, "orders-1 joined")
    assert (rebalance.generation, rebalance.pause_ms, rebalance.moved) == (2, 500, 2)
    assert (joined.kind, joined.message, joined.at_ms) == (
        EventKind.JOINED,
        "orders-1 joined",
        world.now_ms - 300,
    )
    assert world.group.rebalances == 2


def test_while_a_group_rebalances_its_owners_stay_shown(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0, 1]})
    world.describe(PREPARING, 1, {"orders-0": []})
    assert world.group.state == "PreparingRebalance"
    assert world.partition(1).owner == "orders-0"


def test_a_reason_that_the_coordinator_gives_is_said(world: OverviewUnderTest) -> None:
    world.describe(PREPARING, 0, {"orders-0": []}, "the topics have changed")
    world.describe(STABLE, 1, {"orders-0": [0]})
    assert world.group.history[0].message == "the topics have changed"
    assert world.group.history[1].message == "orders-0 joined"


def test_members_are_called_by_their_names_in_a_reason_also_those_that_are_gone(
    world: OverviewUnderTest,
) -> None:
    world.describe(STABLE, 1, {"orders-0": [0], "orders-1": [1]})
    world.describe(
        PREPARING, 1, {"orders-0": []}, "member orders-1-id sent no heartbeat within its session timeout"
    )
    world.describe(
        COMPLETING, 2, {"orders-0": []}, "member orders-1-id sent no heartbeat within its session timeout"
    )
    world.describe(
        STABLE, 2, {"orders-0": [0, 1]}, "member orders-1-id sent no heartbeat within its session timeout"
    )
    assert world.group.history[0].message == "member orders-1 sent no heartbeat within its session timeout"


def test_a_round_that_was_over_before_anybody_looked_has_its_reason(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0]}, "member orders-0-id joined")
    world.describe(STABLE, 2, {"orders-0": [0]}, "member orders-0-id joined again: it leads")
    assert [each.message for each in world.group.history] == [
        "member orders-0 joined again: it leads",
        "member orders-0 joined",
        "orders-0 joined",
    ]


def test_a_group_that_was_empty_begins_anew(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0]})
    world.describe(EMPTY, 2, {})
    world.describe(STABLE, 3, {"orders-1": [0]})
    assert world.group.history[0].message == "orders-1 joined"


def test_a_generation_that_nobody_saw_coming_has_no_pause(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0]})
    world.describe(STABLE, 2, {"orders-0": [0]})
    assert [(each.message, each.pause_ms) for each in world.group.history[:1]] == [("members rejoined", None)]


def test_the_same_generation_again_is_no_rebalance(world: OverviewUnderTest) -> None:
    for _ in range(3):
        world.describe(STABLE, 1, {"orders-0": [0]})
    assert world.group.rebalances == 1


def test_who_leaves_is_said_and_an_empty_group_has_no_owners(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0]})
    world.describe(EMPTY, 2, {})
    assert world.group.history[0].message == "orders-0 left"
    assert world.partition(0).owner is None


def test_without_its_coordinator_a_group_is_unknown_and_its_history_stays(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"orders-0": [0]})
    world.overview.coordinator_lost(GROUP)
    assert (world.group.state, world.partition(0).owner) == ("Unknown", None)
    world.describe(STABLE, 1, {"orders-0": [0]})
    assert world.group.rebalances == 1


def test_two_members_of_one_name_are_distinguished(world: OverviewUnderTest) -> None:
    twice = [
        admin.DescribedMember(member_id=member_id, client_id="orders-0", assignment=assignment([number]))
        for number, member_id in enumerate(["first", "second"])
    ]
    group = admin.DescribedGroup(group_id=GROUP, state=STABLE, generation_id=1, members=twice)
    world.overview.update_description(description_of(admin.WatchGroupResponse(group=group)), world.now_ms)
    assert [each.owner for each in world.group.partitions] == ["orders-0", "orders-0 (second)"]


def test_a_member_that_is_no_replica_is_shown_too(world: OverviewUnderTest) -> None:
    world.describe(STABLE, 1, {"somebody": [0]})
    assert [each.name for each in world.group.members] == ["orders-0", "orders-1", "somebody"]


def test_history_and_partitions_have_an_end(world: OverviewUnderTest) -> None:
    for number in range(EVENTS_MAX + 5):
        world.overview.record_event(GROUP, EventKind.PROCESS, str(number), world.now_ms)
    assert len(world.group.history) == EVENTS_MAX
    assert world.group.history[0].message == str(EVENTS_MAX + 4)
    world.offsets(*(PartitionOffsets(90, 0, 120, world.now_ms) for _ in range(PARTITIONS_SHOWN + 3)))
    assert len(world.group.partitions) == PARTITIONS_SHOWN
    assert world.group.partitions_left_out == 3
    assert world.group.lag_records == 30 * (PARTITIONS_SHOWN + 3)


def test_reports_of_unwatched_groups_are_ignored(world: OverviewUnderTest) -> None:
    world.overview.add_report(pb.SidecarReport(group_id="other", sidecar="x"), world.now_ms)
    world.overview.record_event("other", EventKind.SCALE, "x", world.now_ms)
    world.overview.record_event(None, EventKind.SCALE, "x", world.now_ms)
    world.overview.remove_replica("other", "x")
    assert world.group.history == ()


def test_an_assignment_is_read_whole_or_not_at_all() -> None:
    whole = assignment([3, 1])
    assert partitions_of(whole) == {Partition("orders", 1), Partition("orders", 3)}
    assert partitions_of(b"") == frozenset()
    for end in range(1, len(whole) - 6):
        with pytest.raises(Malformed):
            partitions_of(whole[:end])
    with pytest.raises(Malformed):
        partitions_of(assignment([1], b"\xff"))


def test_an_assignment_that_cannot_be_read_hides_no_other(world: OverviewUnderTest) -> None:
    members = [
        admin.DescribedMember(member_id="a", client_id="foreign", assignment=b"\0"),
        admin.DescribedMember(member_id="b", client_id="orders-0", assignment=assignment([0])),
    ]
    group = admin.DescribedGroup(group_id=GROUP, state=STABLE, generation_id=1, members=members)
    world.overview.update_description(description_of(admin.WatchGroupResponse(group=group)), world.now_ms)
    assert world.partition(0).owner == "orders-0"


def test_members_have_client_id_host_and_dead_letters(world: OverviewUnderTest) -> None:
    members = [
        DescribedMember("a-id", "orders-0", host="10.0.0.7"),
        DescribedMember("b-id", "console"),
        DescribedMember("c-id", "console", host="10.0.0.8"),
    ]
    world.overview.update_description(Description(GROUP, "Stable", 1, "range", members), world.now_ms)
    member = pb.MemberReport(state=pb.MEMBER_STATE_STABLE, generation_id=1, dead_letters=3)
    world.overview.add_report(
        pb.SidecarReport(group_id=GROUP, sidecar="orders-0", member=member), world.now_ms
    )
    world.report("orders-1")
    found = {each.name: (each.client_id, each.host, each.dead_letters) for each in world.group.members}
    assert found == {
        "orders-0": ("orders-0", "10.0.0.7", 3),
        # Not described; and a sidecar that reports no dead letters is older than that field.
        "orders-1": ("orders-1", None, None),
        "console": ("console", None, None),
        "console (c-id)": ("console", "10.0.0.8", None),
    }
