"""The number of slots is the store's: coordinators agree on it, and clients need not know it."""

import asyncio
import uuid
from functools import partial
from pathlib import Path

import grpc.aio
import pytest

from rota_coordinator.core.group.hashing import slot_of
from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.slots.table import SLOTS, SLOTS_MAX
from rota_coordinator.options import option_error, parse
from rota_coordinator.rpc.watch import Watchers
from rota_coordinator.runtime.restored import prepare_restored
from rota_coordinator.store.sqlite import open_store
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.coordinator.v1.records_pb2 import GroupRecord, Record
from tests.conformance.members import TOPIC, Member, fetch, form
from tests.coordinator.fleet import Fleet, RoutingDriver, until
from tests.coordinator.virtual import Memory, Virtual, play
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.postgres import Postgres

GROUPS = [f"group-{number}" for number in range(40)]
FEW, MANY = 7, 120
WITHIN_S = 60


def test_the_number_of_slots_has_limits_and_no_default_because_the_store_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parse([]).slots is None
    for valid in (1, SLOTS_MAX):
        assert not option_error(parse([f"--slots={valid}"]))
    for invalid in (-1, 0, SLOTS_MAX + 1):
        assert (
            option_error(parse([f"--slots={invalid}"]))
            == f"--slots must be between 1 and 1000, not {invalid}"
        )
    monkeypatch.setenv("ROTA_SLOTS", "20")
    assert parse([]).slots == 20


@pytest.mark.parametrize("slots", [1, FEW, SLOTS, MANY])
def test_a_group_is_found_in_the_slot_that_its_hash_and_the_store_say(slots: int) -> None:
    async def run() -> None:
        virtual = await Virtual(store=Memory(slots=slots)).start()
        assert len(virtual.service.slots) == slots
        found = virtual.service.find(pb.FindCoordinatorRequest(group_ids=GROUPS)).coordinators
        assert [each.slot for each in found] == [slot_of(group, slots) for group in GROUPS]
        assert {each.error_code for each in found} == {pb.NONE}
        for group in GROUPS[:5]:
            member = Member(virtual, group)
            await form(member)
            assert await member.commit({0: 3}) == pb.NONE
            assert await fetch(virtual, group) == {0: 3}
            assert virtual.store.written[slot_of(group, slots)]

    play(run)


def test_a_watch_sees_its_slot_whatever_their_number() -> None:
    async def body() -> None:
        watchers = Watchers(FEW)
        virtual = await Virtual(store=Memory(slots=FEW), slot_changed=watchers.slot_changed).start()

        async def describe(group_id: str) -> admin.DescribedGroup:
            reply = await virtual.send(admin.DescribeGroupsRequest(group_ids=[group_id])).answer(1)
            assert isinstance(reply, admin.DescribeGroupsResponse)
            return reply.groups[0]

        watch = watchers.watch(GROUPS[0], describe)
        assert (await anext(watch)).error_code == pb.NONE
        seen = asyncio.ensure_future(anext(watch))
        virtual.service.slots[slot_of(GROUPS[0], FEW)].stop(pb.NOT_COORDINATOR)
        assert (await seen).error_code == pb.NOT_COORDINATOR

    play(body)


def test_all_slots_of_a_restored_store_begin_a_new_incarnation(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "c.db", slots=MANY)
        for group in GROUPS:
            slot = slot_of(group, MANY)
            epoch, _ = await store.claim(slot)
            written = GroupRecord(group_id=group, incarnation=1)
            await store.append(slot, epoch, [Record(group=written)])
        assert await prepare_restored(store, None, partial(WallMs, 5_000)) == len(GROUPS)
        await store.close()

    asyncio.run(body())


async def slots_of(address: str) -> list[int]:
    """The numbers in the slot table of a process."""
    async with grpc.aio.insecure_channel(address) as channel:
        reply = await AdminStub(channel).DescribeSlots(admin.DescribeSlotsRequest(), timeout=WITHIN_S)
    return [each.slot for each in reply.slots]


async def found_at(address: str) -> list[int]:
    """The slots of the groups, as a process says."""
    async with grpc.aio.insecure_channel(address) as channel:
        request = pb.FindCoordinatorRequest(group_ids=GROUPS)
        reply = await CoordinatorStub(channel).FindCoordinator(request, timeout=WITHIN_S)
    return [each.slot for each in reply.coordinators]


def refusal(coordinator: Coordinator, *flags: str) -> str:
    """Return the log of a start with these flags that ends at once."""
    coordinator.begin_start(*flags)
    assert coordinator.ends() == 1
    return coordinator.log.read_text()


@pytest.mark.process
def test_a_coordinator_serves_the_slots_of_its_file_and_refuses_another_number(tmp_path: Path) -> None:
    async def body() -> None:
        assert await slots_of(coordinator.address) == list(range(FEW))
        assert await found_at(coordinator.address) == [slot_of(group, FEW) for group in GROUPS]

    with serving(tmp_path, (*QUICK, f"--slots={FEW}")) as coordinator:
        coordinator.make_topic(TOPIC)
        asyncio.run(body())
        coordinator.stop()
        again = Coordinator(tmp_path, QUICK, name="again")
        assert f"has {FEW} slots, not {SLOTS}, and keeps them" in refusal(again, f"--slots={SLOTS}")
        coordinator.start()
        asyncio.run(body())
    again.start()
    assert asyncio.run(slots_of(again.address)) == list(range(FEW))
    # Its log is there as well.
    again.grow_topic(TOPIC, 8)
    again.stop()


@pytest.mark.process
def test_coordinators_of_one_database_agree_on_the_number_and_one_with_another_is_refused(
    tmp_path: Path, postgres: Postgres
) -> None:
    database = postgres.new_database(f"slots_{uuid.uuid4().hex[:12]}")

    async def is_shared(fleet: Fleet) -> bool:
        shares = await fleet.shares("a")
        return sorted(shares.values()) == [FEW // 2, FEW - FEW // 2]

    async def body(fleet: Fleet) -> None:
        await until(partial(is_shared, fleet))
        for address in fleet.addresses.values():
            assert await slots_of(address) == list(range(FEW))
            assert await found_at(address) == [slot_of(group, FEW) for group in GROUPS]
        # A client knows addresses, and no number of slots.
        driver = RoutingDriver(lambda: fleet.addresses)
        for group in GROUPS[:10]:
            member = Member(driver, group, session_ms=60_000)
            assert await member.commit({0: 5}) == pb.NONE
            assert await fetch(driver, group) == {0: 5}
        await driver.close()

    fleet = Fleet(tmp_path, database, "ab")
    first, second = fleet.members.values()
    first.start(f"--slots={FEW}")
    try:
        second.start()
        asyncio.run(body(fleet))
        other = Coordinator(tmp_path, QUICK, store=database, name="c")
        assert f"has {FEW} slots, not {MANY}, and keeps them" in refusal(other, f"--slots={MANY}")
    finally:
        first.stop()
        second.stop()
