"""A wall clock that is set, and a machine that was suspended: timestamps follow at once, and no member is put out."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota_coordinator.core.group.config import DAY_MS, GroupConfig
from rota_coordinator.core.instants import MonotonicMs, WallClock
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.log import Log
from rota_coordinator.options import option_error, parse
from rota_coordinator.runtime.clocks import Clocks, wall_s
from rota_coordinator.runtime.ownership import Lease
from rota_coordinator.store.port import LEASE_MS_MAX
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import OffsetCommitted
from rota_proto.log.v1 import log_pb2
from tests.conformance.members import Member, fetch, form
from tests.coordinator.store.postgres_processes import administrator, process
from tests.coordinator.virtual import Virtual, play
from tests.log.conversation import Conversation, Producer, batch
from tests.security.clock_server import FILE, SET
from tests.support.coordinator import QUICK, Coordinator

HOUR_S = 3_600
WEEK_S = 7 * DAY_MS // 1000
START_MS = 1_790_000_000_000
SESSION_S = 10


def commits(virtual: Virtual) -> list[OffsetCommitted]:
    records = [record for log in virtual.store.written.values() for record in log]
    return [record.offset_committed for record in records if record.HasField("offset_committed")]


@pytest.mark.parametrize(
    ("monotonic_s", "wall_s", "then"),
    [
        (5.0, 1_790_000_000.0, (5_000, 1_790_000_000_000)),
        (6.0, 1_790_003_601.0, (6_000, 1_790_003_601_000)),  # set forward by an hour
        (6.0, 1_789_996_401.0, (6_000, 1_789_996_401_000)),  # set back by an hour
        (5.5, 1_790_028_800.5, (5_500, 1_790_028_800_500)),  # suspended: the monotonic clock stood still
    ],
)
def test_both_clocks_are_read_anew(monotonic_s: float, wall_s: float, then: tuple[int, int]) -> None:
    now = {"monotonic": 5.0, "wall": 1_790_000_000.0}
    clocks = Clocks(lambda: now["monotonic"], lambda: now["wall"])
    assert clocks.wall_ms() == 1_790_000_000_000
    now.update(monotonic=monotonic_s, wall=wall_s)
    assert (clocks.monotonic_ms(), clocks.wall_ms()) == then
    assert clocks.wall.monotonic(clocks.wall.at(MonotonicMs(7))) == 7


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_commits_have_the_time_of_a_clock_that_was_set_and_sessions_go_on(by_s: int) -> None:
    async def run() -> None:
        virtual = await Virtual(wall=WallClock(START_MS)).start()
        member = Member(virtual, "g", session_ms=SESSION_S * 1_000)
        await form(member)
        assert await member.commit({0: 1}) == pb.NONE
        virtual.wall.ahead_ms += by_s * 1_000
        assert await member.heartbeat() == pb.NONE
        assert await member.commit({0: 2}) == pb.NONE
        await virtual.pass_time(SESSION_S - 1)
        assert await member.heartbeat() == pb.NONE, "its session has a second left, whatever the clock says"
        before, after = (offset.committed_at_ms for offset in commits(virtual))
        assert abs(after - before - by_s * 1_000) < 1_000
        await virtual.pass_time(SESSION_S + 1)
        assert await member.heartbeat() == pb.UNKNOWN_MEMBER_ID, "and it ends as it would have"

    play(run)


def test_offsets_are_kept_for_their_time_by_the_wall_clock() -> None:
    async def run() -> None:
        virtual = await Virtual(GroupConfig(), wall=WallClock(START_MS)).start()
        await Member(virtual, "alone").commit({0: 1}, generation_id=-1)
        virtual.wall.ahead_ms += (WEEK_S - 60) * 1_000
        virtual.service.expire_offsets()
        assert await fetch(virtual, "alone", 0) == {0: 1}
        virtual.wall.ahead_ms += 120 * 1_000
        virtual.service.expire_offsets()
        assert await fetch(virtual, "alone", 0) == {0: -1}

    play(run)


@pytest.mark.parametrize("by_s", [10 * HOUR_S, -10 * HOUR_S])
def test_a_transaction_has_its_time_whatever_the_wall_clock_says(by_s: int) -> None:
    wall = WallClock(START_MS)
    log = Log(LogConfig(), wall)
    log.loaded(wall.at(MonotonicMs(0)))
    made = log.init_producer(
        log_pb2.InitProducerRequest(transactional_id="copier", transaction_timeout_ms=60_000),
        wall.at(MonotonicMs(0)),
        Effects(),
    )
    added = log_pb2.AddOffsetsToTransactionRequest(
        transactional_id="copier",
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        group_id="g",
    )
    assert log.add_offsets(added, wall.at(MonotonicMs(1_000)), Effects()).error_code == pb.NONE
    wall.ahead_ms += by_s * 1_000

    def endings(monotonic_ms: int) -> int:
        assert log.wake_at_ms() == wall.at(MonotonicMs(61_000))
        effects = Effects()
        log.expire(wall.at(MonotonicMs(monotonic_ms)), effects)
        return len(effects.endings)

    assert endings(60_999) == 0
    assert endings(61_000) == 1


def test_a_member_has_its_session_again_after_the_machine_was_suspended() -> None:
    async def run() -> None:
        virtual = await Virtual().start()
        member = Member(virtual, "g", session_ms=SESSION_S * 1_000)
        await form(member)
        await virtual.pass_time(SESSION_S - 1)
        virtual.suspended_s += 8 * HOUR_S
        virtual.wall.ahead_ms += 8 * HOUR_S * 1_000
        await virtual.pass_time(SESSION_S - 1)
        assert await member.heartbeat() == pb.NONE

    play(run)


def test_a_lease_runs_out_while_the_machine_is_suspended() -> None:
    elapsed_ms = 1_000
    lease = Lease(lambda: elapsed_ms, length_ms=3_000)
    lease.renewed(lease.asked())
    assert lease.runs()
    elapsed_ms += 8 * HOUR_S * 1_000
    assert not lease.runs()


SHOW = "import time; from rota_coordinator.runtime.clocks import elapsed_s; print(elapsed_s() - time.monotonic())"


@pytest.mark.process
def test_the_clock_of_leases_counts_the_time_of_a_suspension() -> None:
    # What a suspension does to the two clocks, a time namespace does for one process.
    apart = ["unshare", "--user", "--map-root-user", "--time", "--boottime", str(8 * HOUR_S), "--fork"]
    here, there = (
        float(subprocess.run([*before, sys.executable, "-c", SHOW], check=True, capture_output=True).stdout)
        for before in ([], apart)
    )
    assert there - here == pytest.approx(8 * HOUR_S, abs=60)


@pytest.mark.process
def test_a_dead_coordinator_does_not_keep_its_slots_because_the_databases_clock_was_set_back(
    database: str,
) -> None:
    async def body() -> None:
        async with process(database) as dead, process(database) as other, administrator(database) as admin:
            await dead.store.claim(3)
            await admin.do(
                "UPDATE rota.processes SET lease_until = lease_until + interval '1 hour' "
                "WHERE process_id = %s",
                dead.id,
            )
            await other.store.renew()
            ((left_s,),) = await admin.do(
                "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM rota.processes "
                "WHERE process_id = %s",
                dead.id,
            )
            assert 0 < left_s <= LEASE_MS_MAX / 1_000

    asyncio.run(body())


def test_a_lease_has_a_longest_time() -> None:
    assert "at most 60000" in option_error(parse([f"--slot-lease-ms={LEASE_MS_MAX + 1}"]))
    assert not option_error(parse([f"--slot-lease-ms={LEASE_MS_MAX}"]))


@contextmanager
def clocked(folder: Path) -> Iterator[Coordinator]:
    coordinator = Coordinator(folder, QUICK, program="tests.security.clock_server")
    coordinator.start()
    try:
        yield coordinator
    finally:
        coordinator.stop()


async def set_clocks(coordinator: Coordinator, **ahead: int) -> None:
    coordinator.file.with_name(FILE).write_text(json.dumps(ahead))
    coordinator.signal(signal.SIGUSR2)
    while not all(coordinator.has_said(f"'{name}': {seconds}") for name, seconds in ahead.items()):
        await asyncio.sleep(0.01)


@pytest.mark.process
def test_records_have_the_right_time_and_members_and_transactions_stay(tmp_path: Path) -> None:
    async def appended_ahead_s(talk: Conversation) -> float:
        """Return the seconds by which the log's time is ahead of the clock of this process."""
        reply = await talk.send("t", batch([b"v"]))
        assert reply.error_code == pb.NONE
        return reply.log_append_time_ms / 1_000 - wall_s()

    async def body(coordinator: Coordinator) -> None:
        async with Conversation(coordinator.address) as talk:
            await talk.make("t")
            join = pb.JoinGroupRequest(
                group_id="g",
                group_instance_id="i",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=[pb.Protocol(name="range")],
            )
            joined = await talk.groups.JoinGroup(join)
            beat = pb.HeartbeatRequest(
                group_id="g", member_id=joined.member_id, generation_id=joined.generation_id
            )
            sync = pb.SyncGroupRequest(
                group_id="g",
                member_id=joined.member_id,
                generation_id=joined.generation_id,
                protocol_type="consumer",
                protocol_name="range",
            )
            assert (await talk.groups.SyncGroup(sync)).error_code == pb.NONE
            made = await talk.log.InitProducer(
                log_pb2.InitProducerRequest(transactional_id="copier", transaction_timeout_ms=30_000)
            )
            one = Producer(made.producer_id, made.producer_epoch, 0)
            begun = await talk.send(
                "t", batch([b"v"], producer=one, transactional=True), transactional_id="copier"
            )
            assert begun.error_code == pb.NONE
            for ahead_s, suspended_s in ((0, 0), (HOUR_S, 0), (-HOUR_S, 0), (0, 8 * HOUR_S)):
                await set_clocks(coordinator, wall_s=ahead_s, suspended_s=suspended_s)
                assert await appended_ahead_s(talk) == pytest.approx(ahead_s + suspended_s, abs=1)
                assert (await talk.groups.Heartbeat(beat)).error_code == pb.NONE
            end = log_pb2.EndTransactionRequest(
                transactional_id="copier",
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                commit=True,
            )
            assert (await talk.log.EndTransaction(end)).error_code == pb.NONE

    with clocked(tmp_path) as coordinator:
        asyncio.run(body(coordinator))
        assert SET in coordinator.log.read_text()
