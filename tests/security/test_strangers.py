"""Unauthenticated clients and principals that exceed their limits: members beside them notice nothing."""

import asyncio
import random
import resource
import statistics
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import subscription
from tests.coordinator.callers import Stream as SessionStream
from tests.coordinator.callers import call, channel, session
from tests.security.attack import Attack
from tests.security.floods import FLOODS, HEARTBEAT, Attacker, Flood, resets
from tests.security.http2 import HEADERS, RST_STREAM, Connection
from tests.support.coordinator import Coordinator, serving
from tests.support.processes import peak_mib, wait_for
from tests.support.web import get

pytestmark = [pytest.mark.process, pytest.mark.alone]

WITHIN_S = 60
MEMBER, OTHER = "token-of-the-member", "token-of-another"
TOKENS = f"member plain:{MEMBER} shop.*\nother plain:{OTHER} other.*\n"
DESCRIPTORS = 1_024
MEMORY_MAX_MIB = 300
P99_MAX_S = 1.0
SESSION_MS = 6_000
BEAT_EVERY_S = 0.02
BEATS_MORE = 30


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Coordinator]:
    """A coordinator that asks for tokens, and may open 1,024 files."""
    with asking_for_tokens(tmp_path) as coordinator:
        resource.prlimit(coordinator.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        yield coordinator


@contextmanager
def asking_for_tokens(folder: Path, *flags: str) -> Iterator[Coordinator]:
    """A coordinator that asks for tokens."""
    tokens = folder / "tokens"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    with serving(
        folder, (f"--tokens-file={tokens}", "--group-initial-rebalance-delay-ms=0", *flags)
    ) as coordinator:
        yield coordinator


class MemberBeside:
    """One member that heartbeats on its stream while something else happens."""

    def __init__(self, stream: SessionStream) -> None:
        self._stream = stream
        self.seconds: list[float] = []

    async def join(self) -> None:
        """Join the group, as its only member."""
        join = pb.JoinGroupRequest(
            group_id="shop.orders",
            protocol_type="consumer",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocols=[pb.Protocol(name="range", metadata=subscription())],
        )
        joined = await self._stream.ask(join)
        assert isinstance(joined, pb.JoinGroupResponse)
        if joined.error_code == pb.MEMBER_ID_REQUIRED:
            join.member_id = joined.member_id
            joined = await self._stream.ask(join)
            assert isinstance(joined, pb.JoinGroupResponse)
        assert joined.error_code == pb.NONE
        sync = pb.SyncGroupRequest(
            group_id="shop.orders",
            member_id=joined.member_id,
            generation_id=joined.generation_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        sync.assignments.add(member_id=joined.member_id, assignment=b"all")
        synced = await self._stream.ask(sync)
        assert isinstance(synced, pb.SyncGroupResponse)
        assert synced.error_code == pb.NONE
        self._beat = pb.HeartbeatRequest(
            group_id="shop.orders", member_id=joined.member_id, generation_id=joined.generation_id
        )

    async def heartbeat_until(self, ended: asyncio.Event) -> None:
        """Heartbeat until the event, and 30 times more; each must be answered with NONE."""
        clock = asyncio.get_running_loop().time
        more = BEATS_MORE
        while more > 0:
            more -= ended.is_set()
            began_s = clock()
            answer = await self._stream.ask(self._beat)
            assert isinstance(answer, pb.HeartbeatResponse)
            assert answer.error_code == pb.NONE
            self.seconds.append(clock() - began_s)
            await asyncio.sleep(BEAT_EVERY_S)


@asynccontextmanager
async def member_beside(address: str) -> AsyncIterator[MemberBeside]:
    """A member heartbeats while the block runs, and misses no beat."""
    async with channel(address) as over, session(over, MEMBER) as stream:
        member = MemberBeside(stream)
        await member.join()
        flooded = asyncio.Event()
        beating = asyncio.create_task(member.heartbeat_until(flooded))
        yield member
        flooded.set()
        await beating


async def newcomer(address: str) -> None:
    """Connect, show a token, and ask who coordinates a group."""
    async with channel(address) as over:
        found = await call(over, pb.FindCoordinatorRequest(group_ids=["shop.orders"]), MEMBER)
        assert isinstance(found, pb.FindCoordinatorResponse)
        assert found.coordinators[0].error_code == pb.NONE


async def endure(coordinator: Coordinator, floods: Sequence[tuple[Flood, str]]) -> None:
    """Send floods at the same time, each with its token; a member and a newcomer notice nothing, the memory stays bounded."""
    async with member_beside(coordinator.address) as member:
        attack = Attack(coordinator.address, floods, coordinator.log.with_name("attackers.log"))
        await asyncio.to_thread(attack.wait_until, "sending")
        await newcomer(coordinator.address)
        await asyncio.to_thread(attack.wait_until, "sent")
    await newcomer(coordinator.address)
    attack.end()
    # A few dozen beats: with the default method it would be above the slowest of them.
    assert statistics.quantiles(member.seconds, n=100, method="inclusive")[98] <= P99_MAX_S
    assert peak_mib(coordinator.pid) <= MEMORY_MAX_MIB


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_members_and_newcomers_do_not_notice_a_strangers_flood_of(flood: Flood, guarded: Coordinator) -> None:
    asyncio.run(endure(guarded, [(flood, "")]))


@pytest.mark.parametrize("flood", FLOODS[:5], ids=lambda flood: flood.__name__)
def test_members_and_newcomers_do_not_notice_a_principals_flood_of(
    flood: Flood, guarded: Coordinator
) -> None:
    asyncio.run(endure(guarded, [(flood, OTHER)]))


@pytest.mark.soak("security")
def test_members_and_newcomers_do_not_notice_all_floods_at_the_same_time(
    guarded: Coordinator, seed: int
) -> None:
    drawn = random.Random(seed)
    floods = [(flood, drawn.choice(("", OTHER))) for flood in drawn.sample(FLOODS, len(FLOODS))]
    asyncio.run(endure(guarded, floods))


def test_a_stranger_is_refused_before_its_message_is_read(guarded: Coordinator) -> None:
    with Connection(guarded.address).open() as connection:
        stream, headers = connection.call(HEARTBEAT, "a-wrong-token")
        connection.send(headers)
        answer = next(frame for frame in connection.frames() if frame.stream == stream)
        assert answer.kind in (HEADERS, RST_STREAM)
        assert b"unknown token" in answer.payload


def test_what_was_cut_off_is_reported_with_its_limit_and_counted(tmp_path: Path) -> None:
    # Far fewer calls than a slow machine handles in a second.
    with asking_for_tokens(tmp_path, "--limits=failed-calls-per-second=10") as coordinator:
        with Attacker(coordinator.address, OTHER) as attacker:
            attacker.send(resets)

        def is_counted() -> bool:
            return "rota_coordinator_connections_closed_total 1.0" in get(coordinator.http, "/metrics").page

        # The attacker notices its end before the server has written it down.
        wait_for("the connection is counted", is_counted, within_s=WITHIN_S)
        said = "(limit failed-calls-per-second)"
        wait_for("the limit is in the log", lambda: coordinator.has_said(said), within_s=WITHIN_S)
