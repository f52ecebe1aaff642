"""Prometheus scrapes the coordinator's metrics without disturbing it."""

import asyncio
from collections.abc import Callable

import pytest
from google.protobuf.message import Message
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import override

from rota_coordinator.core.group.effects import Cause, Round
from rota_coordinator.core.group.state import Group, State
from rota_coordinator.observability.metrics import Metrics
from rota_coordinator.runtime.observer import Error, Observer, Observers
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.security.connections import ConnectionCounts
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, answer, form, rejoin_all, settle
from tests.conformance.server import ServerDriver
from tests.coordinator.virtual import CONFIG, Virtual, play
from tests.support.coordinator import Coordinator
from tests.support.documented_metrics import undocumented
from tests.support.prometheus.programs import check_metrics
from tests.support.web import get

# The names that dashboards and alerts use; each with its labels.
NAMES = {
    "rota_coordinator_groups": {"state"},
    "rota_coordinator_members": set(),
    "rota_coordinator_rebalances": {"reason"},
    "rota_coordinator_rebalance_seconds": {"le"},
    "rota_coordinator_requests": {"api", "error"},
    "rota_coordinator_request_seconds": {"api", "le"},
    "rota_coordinator_connections": {"state"},
    "rota_coordinator_connections_closed": set(),
    "rota_coordinator_append_seconds": {"le"},
    "rota_coordinator_slots": {"state"},
    "rota_coordinator_loop_lag_seconds": {"le"},
}
Values = dict[tuple[str, ...], float]


def connections() -> ConnectionCounts:
    return ConnectionCounts(admitted=3, strangers=2, closed=1)


def values(page: str) -> Values:
    """Every sample, by its name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def metrics_of(virtual: "Virtual | None" = None) -> Metrics:
    return Metrics(lambda: virtual.service.slots if virtual else (), connections)


def test_the_names_and_labels_are_those_that_dashboards_use() -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(metrics_of().page().decode())
    }
    assert set(families) == set(NAMES)
    for name, labels in NAMES.items():
        assert {label for sample in families[name].samples for label in sample.labels} == labels, name


@pytest.mark.process
def test_a_page_follows_prometheus_conventions() -> None:
    check_metrics(metrics_of().page().decode())


def test_every_series_is_there_before_anything_happens() -> None:
    found = values(metrics_of().page().decode())
    assert found["rota_coordinator_requests_total", "Heartbeat", "NONE"] == 0
    assert found["rota_coordinator_rebalances_total", Cause.SILENT.value] == 0
    assert {found["rota_coordinator_groups", state.value] for state in State} == {0}
    assert {found["rota_coordinator_slots", state.value] for state in SlotState} == {0}


def watched(body: "Callable[[Virtual, Callable[[], Values]], object]") -> None:
    """Run a body with a service and a way to look at its metrics."""

    async def run() -> None:
        metrics = Metrics(lambda: virtual.service.slots, connections)
        virtual = Virtual(observers=Observers([metrics]))
        await virtual.start()
        result = body(virtual, lambda: values(metrics.page().decode()))
        assert asyncio.iscoroutine(result)
        await result

    play(run)


def test_requests_are_counted_by_call_and_outcome_and_timed() -> None:
    async def body(virtual: Virtual, look: Callable[[], Values]) -> None:
        member = Member(virtual, "g")
        await form(member)
        await member.heartbeat()
        await member.heartbeat(generation_id=9)
        await member.commit({0: 1})
        found = look()
        total = "rota_coordinator_requests_total"
        assert found[total, "Heartbeat", "NONE"] == 1
        assert found[total, "Heartbeat", "ILLEGAL_GENERATION"] == 1
        assert found[total, "JoinGroup", "MEMBER_ID_REQUIRED"] == 1
        assert found[total, "JoinGroup", "NONE"] == 1
        assert found[total, "CommitOffsets", "NONE"] == 1
        # An answer waits for the store; a heartbeat for nobody.
        assert found["rota_coordinator_request_seconds_sum", "CommitOffsets"] > 0
        assert found["rota_coordinator_request_seconds_sum", "Heartbeat"] == 0
        assert found["rota_coordinator_request_seconds_count", "Heartbeat"] == 2
        assert found["rota_coordinator_append_seconds_count",] == virtual.store.appends > 0

    watched(body)


def test_an_error_of_a_part_is_the_error_of_its_request() -> None:
    async def body(virtual: Virtual, look: Callable[[], Values]) -> None:
        member = Member(virtual, "g")
        await form(member)
        request = member.commit_request({0: 1})
        request.topics[0].partitions.add(index=1, metadata="x" * 5_000)
        reply = await answer(virtual.send(request), pb.CommitOffsetsResponse)
        assert reply.error_code == pb.NONE
        leaving = pb.LeaveGroupRequest(group_id="g", members=[pb.LeavingMember(member_id="nobody")])
        await answer(virtual.send(leaving), pb.LeaveGroupResponse)
        deleting = admin.DeleteGroupsRequest(group_ids=["g"])
        await answer(virtual.send(deleting), admin.DeleteGroupsResponse)
        found = look()
        total = "rota_coordinator_requests_total"
        assert found[total, "CommitOffsets", "OFFSET_METADATA_TOO_LARGE"] == 1
        assert found[total, "LeaveGroup", "UNKNOWN_MEMBER_ID"] == 1
        assert found[total, "DeleteGroups", "NON_EMPTY_GROUP"] == 1

    watched(body)


def test_superseded_and_unserved_requests_are_counted_too() -> None:
    async def body(virtual: Virtual, look: Callable[[], Values]) -> None:
        first, second = Member(virtual, "g"), Member(virtual, "g")
        await form(first, second)
        waiting = virtual.service.submit(join_request(first), "")
        again = virtual.service.submit(join_request(first), "")
        assert await waiting is None
        virtual.service.stop()
        await again
        found = look()
        total = "rota_coordinator_requests_total"
        assert found[total, "JoinGroup", "ABORTED"] == 1
        assert found[total, "JoinGroup", "NOT_COORDINATOR"] == 1
        assert found["rota_coordinator_slots", "Down"] == 50

    watched(body)


def join_request(member: Member) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=member.group,
        member_id=member.member_id,
        session_timeout_ms=member.session_ms,
        rebalance_timeout_ms=member.rebalance_ms,
        protocol_type="consumer",
        protocols=[pb.Protocol(name=name, metadata=data) for name, data in member.protocols.items()],
    )


def test_groups_and_members_are_counted_where_they_are() -> None:
    async def body(virtual: Virtual, look: Callable[[], Values]) -> None:
        await form(Member(virtual, "a"), Member(virtual, "a"))
        await form(Member(virtual, "b"))
        leaver = Member(virtual, "c")
        await form(leaver)
        await leaver.leave()
        found = look()
        assert found["rota_coordinator_groups", "Stable"] == 2
        assert found["rota_coordinator_groups", "Empty"] == 1
        assert found["rota_coordinator_members",] == 3
        assert found["rota_coordinator_slots", "Ready"] == 50

    watched(body)


def test_a_rebalance_is_timed_from_its_first_round_to_the_assignment() -> None:
    async def body(virtual: Virtual, look: Callable[[], Values]) -> None:
        first, second, third = (Member(virtual, "g") for _ in range(3))
        await form(first)
        before = look()
        joining = await second.send_second_join()
        await virtual.pass_time(2)
        await rejoin_all([first])
        await second.joined(joining)
        # Before anybody has an assignment another one comes: that is one more round of the same rebalance.
        joining = await third.send_second_join()
        await virtual.pass_time(3)
        await rejoin_all([first, second])
        await third.joined(joining)
        await settle(first, second, third)
        after = look()

        def grown(*key: str) -> float:
            return after[key] - before[key]

        assert grown("rota_coordinator_rebalances_total", Cause.JOINED.value) == 2
        assert grown("rota_coordinator_rebalance_seconds_count") == 1
        assert 5 <= grown("rota_coordinator_rebalance_seconds_sum") < 6

    watched(body)


@pytest.mark.parametrize(
    ("cause", "happens"),
    [
        (Cause.LEFT, lambda member: member.leave()),
        (Cause.SILENT, lambda member: member.driver.pass_time(20)),
        (Cause.JOINED_AGAIN, lambda member: member.joined(member.send_join())),
    ],
)
def test_rebalances_are_counted_by_cause(cause: Cause, happens: Callable[[Member], "object"]) -> None:
    async def body(virtual: Virtual, look: Callable[[], Values]) -> None:
        member = Member(virtual, "g")
        await form(member)
        result = happens(member)
        assert asyncio.iscoroutine(result)
        await result
        assert look()["rota_coordinator_rebalances_total", cause.value] == 1

    watched(body)


class Broken(Observer):
    """Fails at everything."""

    @override
    def answered(self, request: Message, error: Error, seconds: float) -> None:
        raise ArithmeticError("the clock went back")

    @override
    def appended(self, seconds: float) -> None:
        raise ArithmeticError("the clock went back")

    @override
    def round_changed(self, change: Round) -> None:
        raise ArithmeticError("the clock went back")

    @override
    def lagged(self, seconds: float) -> None:
        raise ArithmeticError("the clock went back")


def test_metrics_that_fail_fail_no_request() -> None:
    async def run() -> None:
        said: list[str] = []
        metrics = metrics_of()
        virtual = await Virtual(observers=Observers([Broken(), metrics], said.append)).start()
        members = [Member(virtual, "g") for _ in range(2)]
        await form(*members)
        assert await members[0].commit({0: 7}) == pb.NONE
        assert await members[0].heartbeat() == pb.NONE
        # Said once of each, and whoever comes after the broken one still counts.
        assert sorted(text.split(" ")[0] for text in said) == [
            "Broken.answered",
            "Broken.appended",
            "Broken.lagged",
            "Broken.round_changed",
        ]
        assert values(metrics.page().decode())["rota_coordinator_requests_total", "Heartbeat", "NONE"] == 1

    play(run)


def test_ten_thousand_groups_are_counted() -> None:
    async def run() -> None:
        virtual = await Virtual().start()
        for number in range(10_000):
            slot = virtual.service.slots[number % 50]
            slot.groups.groups[f"g-{number}"] = Group(f"g-{number}", CONFIG, incarnation=1)
        found = values(metrics_of(virtual).page().decode())
        assert found["rota_coordinator_groups", "Empty"] == 10_000

    play(run)


def scrape(coordinator: Coordinator) -> str:
    status, page = get(coordinator.http, "/metrics")
    assert status == 200
    return page


@pytest.mark.process
def test_a_running_coordinator_shows_what_it_did(coordinator: Coordinator) -> None:
    async def work() -> None:
        driver = ServerDriver(coordinator.address, DEFAULT)
        members = [Member(driver, "g") for _ in range(2)]
        await form(*members)
        for offset in range(5):
            assert await members[0].commit({0: offset}) == pb.NONE
        assert await members[1].heartbeat() == pb.NONE
        await driver.close()

    asyncio.run(work())
    page = scrape(coordinator)
    found = values(page)
    assert found["rota_coordinator_requests_total", "CommitOffsets", "NONE"] == 5
    assert found["rota_coordinator_requests_total", "Heartbeat", "NONE"] == 1
    assert found["rota_coordinator_groups", "Stable"] == 1
    assert found["rota_coordinator_members",] == 2
    assert found["rota_coordinator_slots", "Ready"] == 50
    assert found["rota_coordinator_append_seconds_count",] >= 5
    assert found["rota_coordinator_loop_lag_seconds_count",] > 0
    assert found["rota_coordinator_rebalance_seconds_count",] >= 1
    assert undocumented(page) == set()
    check_metrics(page)
