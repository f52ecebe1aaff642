"""Several coordinators on one PostgreSQL: what a crash, a freeze and a planned hand-over leave of the groups."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota_coordinator.runtime import failpoints
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import Member, answer, fetch, new_group
from tests.coordinator.fleet import Fleet, RoutingDriver, until
from tests.coordinator.watched import SCENES, Watched, kill_at, served_by
from tests.support.postgres.fixtures import StartPostgres

pytestmark = [pytest.mark.process, pytest.mark.paired]

GROUPS = 50
SESSION_MS = 120_000


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> Iterator[Fleet]:
    with Fleet(tmp_path, database, getattr(request, "param", "ab")) as fleet:
        yield fleet


@asynccontextmanager
async def crew(fleet: Fleet, groups: int = GROUPS, size: int = 2) -> AsyncIterator[list[Watched]]:
    """Stable groups all over the slots, with commits."""
    await until(fleet.is_shared_equally)
    driver = RoutingDriver(lambda: fleet.addresses)
    made = []
    for _ in range(groups):
        group = new_group()
        made.append(Watched([Member(driver, group, session_ms=SESSION_MS) for _ in range(size)]))
    await asyncio.gather(*(group.form() for group in made))
    await asyncio.gather(*(group.commit() for group in made))
    yield made
    await driver.close()


def test_every_failpoint_is_tried() -> None:
    assert set(SCENES) == set(failpoints.NAMES)


@pytest.mark.soak("failover")
@pytest.mark.parametrize("fleet", ["ab", "abc"], indirect=True, ids=["two", "three"])
def test_an_owner_that_dies_at_any_point_of_a_rebalance_loses_nothing(fleet: Fleet) -> None:
    async def die_at(failpoint: str, groups: list[Watched]) -> None:
        victim = fleet.members["a"]
        group = await served_by(groups, victim.address)
        newcomer = Member(group.driver, group.name, session_ms=SESSION_MS)
        await kill_at(failpoint, victim, group, newcomer)
        others = [each for each in groups if each is not group]
        await asyncio.gather(*(each.goes_on() for each in others))
        assert await fetch(group.driver, group.name, 0) == {0: group.committed}
        await SCENES[failpoint].resume(group, newcomer)
        await group.goes_on()

    async def body() -> None:
        async with crew(fleet) as groups:
            for failpoint in failpoints.NAMES:
                # It comes back, and gets its share again; nobody notices.
                fleet.members["a"].stop()
                fleet.members["a"].start(f"--failpoints={failpoint}")
                await until(fleet.is_shared_equally)
                await asyncio.gather(*(group.goes_on() for group in groups))
                await die_at(failpoint, groups)
            fleet.members["a"].start()

    asyncio.run(body())


@pytest.mark.soak("failover")
def test_a_frozen_owner_that_wakes_answers_and_appends_nothing(fleet: Fleet) -> None:
    async def body() -> None:
        async with crew(fleet, groups=10) as groups:
            frozen = fleet.members["a"]
            group = await served_by(groups, frozen.address)
            stale = group.members[0].with_changes(driver=group.driver.at(frozen.address))
            frozen.signal(signal.SIGSTOP)
            heartbeat = stale.driver.send(
                pb.HeartbeatRequest(
                    group_id=group.name, generation_id=stale.generation, member_id=stale.member_id
                )
            )
            commit = stale.driver.send(stale.commit_request({0: 999}))
            await asyncio.gather(*(each.goes_on() for each in groups))
            frozen.signal(signal.SIGCONT)
            assert (await answer(heartbeat, pb.HeartbeatResponse)).error_code == pb.NOT_COORDINATOR
            assert (await answer(commit, pb.CommitOffsetsResponse)).error_code == pb.NOT_COORDINATOR
            # It comes back as somebody new, and gets its share again.
            await until(fleet.is_shared_equally)
            await asyncio.gather(*(each.goes_on() for each in groups))

    asyncio.run(body())


def test_an_owner_that_stops_gives_its_slots_away_without_waiting_for_the_lease(
    tmp_path: Path, database: str
) -> None:
    async def body(fleet: Fleet) -> None:
        async with crew(fleet, groups=10) as groups:
            group = await served_by(groups, fleet.members["a"].address)
            stream = group.driver.at(fleet.members["a"].address)
            assert await asyncio.to_thread(fleet.members["a"].stop) == 0
            assert stream.sent_away[group.name] == fleet.members["b"].address
            await asyncio.gather(*(each.goes_on() for each in groups))

    with Fleet(tmp_path, database, "ab", lease_ms=60_000) as fleet:
        asyncio.run(body(fleet))


def test_members_of_a_slot_that_moves_are_sent_to_its_new_owner(fleet: Fleet) -> None:
    async def body() -> None:
        async with crew(fleet) as groups:
            fleet.members["b"].stop()
            await asyncio.gather(*(group.goes_on() for group in groups))
            stream = groups[0].driver.at(fleet.members["a"].address)
            fleet.members["b"].start()
            await until(fleet.is_shared_equally)
            moved = {group.name for group in groups} & stream.sent_away.keys()
            assert moved
            assert {stream.sent_away[name] for name in moved} == {fleet.members["b"].address}
            await asyncio.gather(*(group.goes_on() for group in groups))

    asyncio.run(body())


@pytest.mark.soak("failover")
def test_a_store_that_dies_and_comes_back_loses_nothing(
    tmp_path: Path, start_postgres: StartPostgres
) -> None:
    store = start_postgres(durable=True)

    async def body(fleet: Fleet) -> None:
        async with crew(fleet, groups=10) as groups:
            await asyncio.to_thread(store.kill)
            pending = [asyncio.create_task(group.goes_on()) for group in groups]
            # Without its store nobody may speak for a group for longer than its lease.
            await until(lambda: nobody_serves(groups[0]))
            store.start()
            await asyncio.gather(*pending)
            await until(fleet.is_shared_equally)
            await asyncio.gather(*(group.goes_on() for group in groups))

    with Fleet(tmp_path, store.new_database("failover"), "ab") as fleet:
        asyncio.run(body(fleet))


async def nobody_serves(group: Watched) -> bool:
    """Return whether both processes refuse a heartbeat that each of them would have answered."""
    addresses = group.driver.addresses.values()
    first = group.members[0]
    codes = [await first.with_changes(driver=group.driver.at(address)).heartbeat() for address in addresses]
    return set(codes) == {pb.NOT_COORDINATOR}
