"""
Rounds of kills: coordinators with TLS and tokens are killed at every failpoint and under load, and started again.

Called by `test_kills.py`, on SQLite (one process) and on PostgreSQL (two, which take over from each other). A kill is
followed by a check of all groups: no acknowledged commit is lost, no committed offset is lowered, no group is served by
two processes, and no member is put out.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import grpc
import grpc.aio

from rota_coordinator.runtime import failpoints
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import TOPIC, Member, fetch, new_group
from tests.conformance.server import Login, channel_to
from tests.coordinator.callers import call
from tests.coordinator.fleet import Access, Fleet, RoutingDriver, until
from tests.coordinator.watched import SCENES, Watched, kill_at
from tests.support.certificates import Authority
from tests.support.coordinator import Coordinator

Store = Literal["SQLite", "PostgreSQL"]
UNDER_LOAD = "under-load"
KILL_POINTS = (*failpoints.NAMES, UNDER_LOAD)
"""Where a process is killed."""
GROUPS = 8
SESSION_MS = 600_000
# A request is sent again when its connection ends, and not because a busy machine is late: a copy that arrives behind
# the next commit would lower the offset, as it would on Kafka.
TRY_S = 60
# Committed under load. The first partitions are assigned, one to each member, and only their owners may commit them.
PARTITIONS = range(32, 40)
COMMITS_BEFORE_A_KILL = range(20, 300)
TOKEN = "token-of-the-members"
TOKENS = f"members plain:{TOKEN} admin:* topics:*\n"


def plan(chance: random.Random, kills: int) -> list[str]:
    """The places of a round's kills: each equally often, and in any order."""
    kill_points: list[str] = []
    while len(kill_points) < kills:
        kill_points += chance.sample(KILL_POINTS, len(KILL_POINTS))
    return kill_points[:kills]


def guarded(folder: Path) -> Access:
    """Servers with TLS and a tokens file, and callers that satisfy them."""
    authority = Authority(folder / "authority")
    server = authority.issue("coordinator")
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    encryption = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    return Access(
        (f"--tls-cert={server.certificate}", f"--tls-key={server.key}", f"--tokens-file={tokens}"),
        Login(encryption, TOKEN),
        Login(encryption),
    )


def fleet(store: Store, folder: Path, database: str) -> Fleet:
    """The processes of a round."""
    if store == "SQLite":
        return Fleet(folder, f"sqlite:{folder / 'coordinator.db'}", "a", access=guarded(folder))
    return Fleet(folder, database, "ab", access=guarded(folder))


class Kills:
    """One round: groups with their members, and the processes that are killed in turn."""

    def __init__(
        self, store: Store, fleet: Fleet, kill_points: Collection[str], chance: random.Random
    ) -> None:
        self.fleet = fleet
        # On PostgreSQL there is no log, and offsets of any topic are accepted.
        self._has_log = store == "SQLite"
        # Performed so far: kills by place, and acknowledged commits under load.
        self.kills = Counter[str]()
        self.commits = 0
        self._kill_points = list(kill_points)
        self._chance = chance
        self._driver = RoutingDriver(lambda: fleet.addresses, fleet.access.login, TRY_S)
        self._groups: list[Watched] = []
        # Acknowledged offsets of the commits under load, by group.
        self._acknowledged: dict[str, dict[int, int]] = {}
        for _ in range(GROUPS):
            self._add_group(new_group())

    async def run(self) -> None:
        """Form the groups, perform every kill, and check the groups after each."""
        victims = list(self.fleet.members.values())
        for number, victim in enumerate(victims):
            await self._start(victim, number)
        await until(self.fleet.is_shared_equally)
        if self._has_log:
            await self._driver.at(victims[0].address).create_topic(TOPIC, PARTITIONS.stop)
        await asyncio.gather(*(group.form() for group in self._groups))
        await asyncio.gather(*(group.commit() for group in self._groups))
        for number, kill_point in enumerate(self._kill_points):
            victim = victims[number % len(victims)]
            # The victim starts with the failpoint of its next kill.
            following = number + len(victims)
            if kill_point == UNDER_LOAD:
                await self._kill_under_load(victim, following)
            else:
                await self._kill_at(kill_point, victim, following)
            self.kills[kill_point] += 1
            await until(self.fleet.is_shared_equally)
            await self._check()
        await self._check_access()
        await self._driver.close()

    def _member(self, group: str) -> Member:
        return Member(self._driver, group, session_ms=SESSION_MS)

    def _add_group(self, name: str) -> Watched:
        self._groups.append(Watched([self._member(name) for _ in range(2)]))
        self._acknowledged[name] = dict.fromkeys(PARTITIONS, 0)
        return self._groups[-1]

    async def _start(self, coordinator: Coordinator, number: int) -> None:
        kill_point = self._kill_points[number] if number < len(self._kill_points) else UNDER_LOAD
        coordinator.begin_start(*(() if kill_point == UNDER_LOAD else (f"--failpoints={kill_point}",)))
        await asyncio.to_thread(coordinator.end_start)

    async def _group_of(self, coordinator: Coordinator) -> Watched:
        """One of the smallest groups that the process serves; a new one if it serves none of them."""
        served = [
            group for group in self._groups if await self._driver.find(group.name) == coordinator.address
        ]
        while not served:
            name = new_group()
            if await self._driver.find(name) == coordinator.address:
                served = [self._add_group(name)]
                await served[0].form()
                await served[0].commit()
        smallest = min(len(group.members) for group in served)
        return self._chance.choice([group for group in served if len(group.members) == smallest])

    async def _kill_at(self, kill_point: str, victim: Coordinator, following: int) -> None:
        """Kill the process while it is held at a failpoint of a rebalance."""
        group = await self._group_of(victim)
        newcomer = self._member(group.name)
        await kill_at(kill_point, victim, group, newcomer)
        restart = asyncio.create_task(self._start(victim, following))
        if len(self.fleet.members) == 1:
            await restart
        await asyncio.gather(*(each.goes_on() for each in self._groups if each is not group))
        assert await fetch(self._driver, group.name, 0) == {0: group.committed}
        await SCENES[kill_point].resume(group, newcomer)
        await restart

    async def _kill_under_load(self, victim: Coordinator, following: int) -> None:
        """Kill the process between two of many commits; each partition's commits continue until one is acknowledged."""
        group = await self._group_of(victim)
        acknowledged = self._acknowledged[group.name]
        commits_until_kill = self._chance.choice(COMMITS_BEFORE_A_KILL)
        restart: asyncio.Task[None] | None = None

        async def commit_on(partition: int) -> None:
            nonlocal commits_until_kill, restart
            is_last = False
            while not is_last:
                is_last = restart is not None
                error = await group.members[0].commit({partition: acknowledged[partition] + 1})
                assert error == pb.NONE
                acknowledged[partition] += 1
                self.commits += 1
                commits_until_kill -= 1
                if commits_until_kill == 0:
                    victim.kill()
                    restart = asyncio.create_task(self._start(victim, following))

        done = asyncio.Event()
        watch = asyncio.create_task(self._watch(group, done))
        await asyncio.gather(*map(commit_on, PARTITIONS))
        done.set()
        await watch
        assert restart is not None
        await restart

    async def _watch(self, group: Watched, done: asyncio.Event) -> None:
        """Read committed offsets over and over: none is below an acknowledged one, or lower than before."""
        acknowledged = self._acknowledged[group.name]
        seen = dict(acknowledged)
        while not done.is_set():
            at_least = {index: max(seen[index], acknowledged[index]) for index in PARTITIONS}
            seen = await self._committed(group)
            low = {index: (least, seen[index]) for index, least in at_least.items() if seen[index] < least}
            assert not low, f"committed offsets of {group.name} were lost or lowered: {low}"

    async def _committed(self, group: Watched) -> dict[int, int]:
        found = await fetch(self._driver, group.name, *PARTITIONS)
        # Without a commit the offset is -1.
        return {index: max(offset, 0) for index, offset in found.items()}

    async def _check(self) -> None:
        """All groups continue, with all their offsets, each at one process."""
        await asyncio.gather(*(group.goes_on() for group in self._groups))
        for group in self._groups:
            assert await self._committed(group) == self._acknowledged[group.name], group.name
            await self._check_owner(group)

    async def _check_owner(self, group: Watched) -> None:
        """
        One process answers for the group. Slots may move between two heartbeats, so that each of the processes owned it
        in its turn; then they do not answer a second time.
        """
        addresses = [*self.fleet.addresses.values()] * 2
        member = group.members[0]
        codes = [
            await member.with_changes(driver=self._driver.at(address)).heartbeat() for address in addresses
        ]
        assert len(self.fleet.members) == 1 or set(codes) != {pb.NONE}, f"{group.name} has two owners"

    async def _check_access(self) -> None:
        """Every process still asks for TLS and a token."""
        for address in self.fleet.addresses.values():
            async with channel_to(address) as plain:
                assert await _refusal(plain) is grpc.StatusCode.UNAVAILABLE
            async with channel_to(address, self.fleet.access.without_token) as without_token:
                assert await _refusal(without_token) is grpc.StatusCode.UNAUTHENTICATED


async def _refusal(over: grpc.aio.Channel) -> grpc.StatusCode:
    try:
        await call(over, pb.FindCoordinatorRequest(group_ids=["any"]))
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
