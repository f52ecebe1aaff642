"""Several coordinators on one PostgreSQL: what a crash, a freeze and a planned hand-over leave of the groups."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from rota_coordinator import failpoints
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import Call
from tests.conformance.members import Member, answer, assignment, fetch, form, new_group, settle
from tests.coordinator.fleet import Fleet, RoutingDriver, until
from tests.support.postgres.fixtures import StartPostgres

pytestmark = [pytest.mark.process, pytest.mark.alone]

GROUPS = 50
SESSION_MS = 120_000


@dataclass(slots=True)
class Watched:
    """A group with its members, and what was acknowledged to them."""

    members: list[Member]
    committed: int = 0
    generations: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.members[0].group

    @property
    def driver(self) -> RoutingDriver:
        driver = self.members[0].driver
        assert isinstance(driver, RoutingDriver)
        return driver

    async def form(self) -> None:
        await form(*self.members)
        self.note()

    def note(self) -> None:
        """The members are in a new generation; none was told twice."""
        (told,) = {member.generation for member in self.members}
        assert all(told > earlier for earlier in self.generations), (told, self.generations)
        self.generations.add(told)

    async def commit(self) -> None:
        assert await self.members[0].commit({0: self.committed + 1}) == pb.NONE
        self.committed += 1

    async def goes_on(self) -> None:
        """Nobody was put out, nothing was lost, and the members may commit: as if nothing had happened."""
        codes = await asyncio.gather(*(member.heartbeat() for member in self.members))
        assert set(codes) == {pb.NONE}, (self.name, codes)
        assert await fetch(self.driver, self.name, 0) == {0: self.committed}
        await self.commit()

    async def form_anew(self, newcomer: Member) -> None:
        """The round was lost, and its newcomer forgotten: it comes again, and there is another round."""
        reply = await answer(newcomer.send_join(), pb.JoinGroupResponse)
        assert reply.error_code == pb.UNKNOWN_MEMBER_ID, reply
        newcomer.member_id = ""
        joining = await newcomer.send_second_join()
        assert await joining.is_parked()
        calls = [member.send_join() for member in self.members]
        for member, call in zip([*self.members, newcomer], [*calls, joining], strict=True):
            await member.joined(call)
        self.members.append(newcomer)
        await settle(*self.members)
        self.note()

    async def ask_again(self, newcomer: Member) -> None:
        """The round was complete: whoever has no answer yet asks for its part again, and has it."""
        self.members.append(newcomer)
        calls = [member.send_sync() for member in self.members]
        for number, call in enumerate(calls):
            reply = await answer(call, pb.SyncGroupResponse)
            assert (reply.error_code, reply.assignment) == (pb.NONE, assignment(number))
        self.note()


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


async def served_by(groups: list[Watched], address: str) -> Watched:
    """One of the groups that this process serves."""
    for group in groups:
        if await group.driver.find(group.name) == address:
            return group
    raise AssertionError(f"{address} serves none of {len(groups)} groups")


def notices(group: Watched, address: str) -> int:
    return sum(notice.group_id == group.name for notice in group.driver.at(address).notices)


async def begin_round(group: Watched, newcomer: Member) -> list[Call]:
    """A newcomer joins: the others have to be told."""
    return [await newcomer.send_second_join()]


async def finish_round(group: Watched, newcomer: Member) -> list[Call]:
    """A round up to the leader's assignment; the followers ask for theirs first, so that several wait for it."""
    joining = await newcomer.send_second_join()
    assert await joining.is_parked()
    members = [*group.members, newcomer]
    calls = [*(member.send_join() for member in group.members), joining]
    for member, call in zip(members, calls, strict=True):
        await member.joined(call)
    followers = [member for member in members if not member.leads]
    (leader,) = (member for member in members if member.leads)
    waiting = [member.send_sync() for member in followers]
    for call in waiting:
        assert await call.is_parked()
    parts = {member.member_id: assignment(number) for number, member in enumerate(members)}
    return [*waiting, leader.send_sync(parts)]


class Scene(NamedTuple):
    """How a failpoint is reached, and how the group goes on after the crash."""

    reach: Callable[[Watched, Member], Coroutine[None, None, list[Call]]]
    resume: Callable[[Watched, Member], Coroutine[None, None, None]]


SCENES = {
    failpoints.SOME_TOLD: Scene(begin_round, Watched.form_anew),
    failpoints.NOTIFIED: Scene(begin_round, Watched.form_anew),
    failpoints.SOME_JOINED: Scene(begin_round, Watched.form_anew),
    failpoints.ASSIGNMENT_WRITTEN: Scene(finish_round, Watched.ask_again),
    failpoints.SOME_ANSWERED: Scene(finish_round, Watched.ask_again),
}


def test_every_failpoint_is_tried() -> None:
    assert set(SCENES) == set(failpoints.NAMES)


@pytest.mark.soak("failover")
@pytest.mark.parametrize("fleet", ["ab", "abc"], indirect=True, ids=["two", "three"])
def test_an_owner_that_dies_at_any_point_of_a_rebalance_loses_nothing(fleet: Fleet) -> None:
    async def die_at(failpoint: str, groups: list[Watched]) -> None:
        victim = fleet.members["a"]
        group = await served_by(groups, victim.address)
        newcomer = Member(group.driver, group.name, session_ms=SESSION_MS)
        told_before = notices(group, victim.address)
        victim.signal(signal.SIGUSR1)
        await until(lambda: said(victim.has_said, "failpoints armed"))
        calls = await SCENES[failpoint].reach(group, newcomer)
        await until(lambda: said(victim.has_said, f"failpoint {failpoint} reached"))
        if failpoint == failpoints.SOME_TOLD:
            await until(lambda: said(lambda _: notices(group, victim.address) == told_before + 1, ""))
        victim.kill()
        # What was under way goes on at the next owner: a join begins anew, a sync is answered or asked again.
        for call in calls:
            call.future.cancel()  # type: ignore[attr-defined]
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


async def said(has_said: Callable[[str], bool], text: str) -> bool:
    return has_said(text)


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


def test_an_owner_that_stops_hands_its_slots_over_without_waiting_for_the_lease(
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
    """Whether both processes refuse a heartbeat that both would have answered."""
    addresses = group.driver.addresses.values()
    first = group.members[0]
    codes = [await first.with_changes(driver=group.driver.at(address)).heartbeat() for address in addresses]
    return set(codes) == {pb.NOT_COORDINATOR}
