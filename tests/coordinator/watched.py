"""Groups that coordinators are killed under: their members, what was acknowledged to them, and each place to die at."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.runtime import failpoints
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import Call
from tests.conformance.members import Member, answer, assignment, fetch, form, settle
from tests.coordinator.fleet import RoutingDriver, until
from tests.support.coordinator import Coordinator


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
        (generation,) = {member.generation for member in self.members}
        assert all(generation > earlier for earlier in self.generations), (generation, self.generations)
        self.generations.add(generation)

    async def commit(self) -> None:
        assert await self.members[0].commit({0: self.committed + 1}) == pb.NONE
        self.committed += 1

    async def goes_on(self) -> None:
        """Assert that no member was removed, nothing was lost, and the members may commit."""
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
        """
        Send SyncGroup again for each member without an assignment; the round was complete, so each receives its part.
        """
        self.members.append(newcomer)
        calls = [member.send_sync() for member in self.members]
        for number, call in enumerate(calls):
            reply = await answer(call, pb.SyncGroupResponse)
            assert (reply.error_code, reply.assignment) == (pb.NONE, assignment(number))
        self.note()


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
    """Steps that reach a failpoint, and steps of the group after the crash."""

    reach: Callable[[Watched, Member], Coroutine[None, None, list[Call]]]
    resume: Callable[[Watched, Member], Coroutine[None, None, None]]


SCENES = {
    failpoints.SOME_NOTIFIED: Scene(begin_round, Watched.form_anew),
    failpoints.NOTIFIED: Scene(begin_round, Watched.form_anew),
    failpoints.SOME_JOINED: Scene(begin_round, Watched.form_anew),
    failpoints.ASSIGNMENT_WRITTEN: Scene(finish_round, Watched.ask_again),
    failpoints.SOME_ANSWERED: Scene(finish_round, Watched.ask_again),
}


async def said(has_said: Callable[[str], bool], text: str) -> bool:
    return has_said(text)


async def kill_at(failpoint: str, victim: Coordinator, group: Watched, newcomer: Member) -> None:
    """
    Kill the group's owner while it is held at the failpoint of a rebalance that the newcomer causes.

    What was under way goes on at the next owner: a join begins anew, a sync is answered or asked again.
    """
    notices_before = notices(group, victim.address)
    victim.signal(signal.SIGUSR1)
    await until(lambda: said(victim.has_said, "failpoints armed"))
    calls = await SCENES[failpoint].reach(group, newcomer)
    await until(lambda: said(victim.has_said, f"failpoint {failpoint} reached"))
    if failpoint == failpoints.SOME_NOTIFIED:
        await until(lambda: said(lambda _: notices(group, victim.address) == notices_before + 1, ""))
    victim.kill()
    for each in calls:
        each.future.cancel()  # type: ignore[attr-defined]
