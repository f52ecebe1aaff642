"""No member is removed because the coordinator itself stalled: stopped, swapped out, or too busy to check."""

import asyncio
import signal
from dataclasses import replace

import pytest
from typing_extensions import override

from rota_coordinator.core.group.expiry import extend_deadline
from rota_coordinator.core.instants import MonotonicMs
from rota_coordinator.runtime.observer import Observers
from rota_coordinator.runtime.overload import STALL_MIN_S, TICK_S, Stalls
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.core import CoreDriver
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, form, rejoin_all
from tests.conformance.server import ServerDriver
from tests.coordinator.observability.test_metrics import Broken
from tests.coordinator.virtual import CONFIG, Virtual, play, stall, turn
from tests.support.coordinator import Coordinator

SESSION_S = 10


@pytest.mark.parametrize(
    ("deadline_ms", "stall_ms", "left_ms", "then"),
    [
        (1_500, 400, 9_000, (1_900, 400)),  # it had 500 when the stall ended, and has 900 as when it began
        (700, 800, 9_000, (1_500, 500)),  # it ended meanwhile: the 500 that it had are before it again
        (700, 100, 9_000, (700, 0)),  # past before the stall began
        (1_500, 400, 300, (1_800, 300)),
        (700, 800, 300, (1_300, 300)),
        (1_500, 400, 0, (1_500, 0)),
    ],
)
def test_a_deadline_moves_by_what_is_left_of_the_grace(
    deadline_ms: int, stall_ms: int, left_ms: int, then: tuple[int, int]
) -> None:
    assert extend_deadline(deadline_ms, stall_ms, left_ms, now_ms=1_000) == then


def test_members_keep_the_time_that_they_had_when_the_stall_began() -> None:
    async def body(driver: CoreDriver) -> None:
        member = Member(driver, "g")
        await form(member)
        await driver.pass_time(6)
        driver.now_ms += 20_000
        driver.groups.compensate_stall(20_000, MonotonicMs(driver.now_ms))
        await driver.pass_time(3.9)
        assert await member.heartbeat() == pb.NONE

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_a_dead_member_gains_one_session_however_often_the_coordinator_stalls() -> None:
    async def body(driver: CoreDriver) -> None:
        member = Member(driver, "g")
        await form(member)
        silent_since_ms = driver.now_ms
        while driver.groups.groups["g"].members.by_id:
            await driver.pass_time(1)
            driver.now_ms += 1_000
            driver.groups.compensate_stall(1_000, MonotonicMs(driver.now_ms))
            assert driver.now_ms - silent_since_ms <= 2 * SESSION_S * 1_000 + 2_000
        assert driver.now_ms - silent_since_ms >= 2 * SESSION_S * 1_000

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_a_member_that_sends_again_has_all_of_its_grace_again() -> None:
    async def body(driver: CoreDriver) -> None:
        member = Member(driver, "g")
        await form(member)
        for _ in range(5):
            await driver.pass_time(1)
            driver.now_ms += 3 * SESSION_S * 1_000
            driver.groups.compensate_stall(3 * SESSION_S * 1_000, MonotonicMs(driver.now_ms))
            assert await member.heartbeat() == pb.NONE

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_a_round_waits_for_members_whose_requests_were_delayed_by_a_stall() -> None:
    async def body(driver: CoreDriver) -> None:
        first, second = (Member(driver, "g", rebalance_ms=5_000) for _ in range(2))
        await form(first)
        joining = await second.send_second_join()
        await driver.pass_time(4)
        driver.now_ms += 8_000
        driver.groups.compensate_stall(8_000, MonotonicMs(driver.now_ms))
        await driver.pass_time(0.5)
        await rejoin_all([first])
        await second.joined(joining)
        assert len(driver.groups.groups["g"].members) == 2

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_a_member_that_waits_for_the_leader_is_not_removed_because_of_a_stall() -> None:
    async def body(driver: CoreDriver) -> None:
        leader = Member(driver, "g", rebalance_ms=5_000)
        await leader.joined(await leader.send_second_join())
        await driver.pass_time(4)
        driver.now_ms += 8_000
        driver.groups.compensate_stall(8_000, MonotonicMs(driver.now_ms))
        await driver.pass_time(0.5)
        call = leader.send_sync({leader.member_id: b""})
        reply = await call.answer()
        assert isinstance(reply, pb.SyncGroupResponse)
        assert reply.error_code == pb.NONE

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_a_suspect_keeps_its_time_of_grace() -> None:
    async def body(driver: CoreDriver) -> None:
        driver.groups.config = replace(driver.groups.config, rebalance_coalesce_ms=1_000)
        member = Member(driver, "g")
        await form(member)
        await driver.pass_time(SESSION_S + 0.5)
        driver.now_ms += 5_000
        driver.groups.compensate_stall(5_000, MonotonicMs(driver.now_ms))
        await driver.pass_time(0.4)
        assert await member.heartbeat() == pb.NONE

    asyncio.run(body(CoreDriver(DEFAULT)))


class Lags(Broken):
    """Keeps what it is told of the loop."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @override
    def lagged(self, seconds: float) -> None:
        self.seconds.append(seconds)


def test_the_loop_is_measured_and_its_stalls_are_reported() -> None:
    async def run() -> None:
        lags = Lags()
        stalls = Stalls(asyncio.get_running_loop().time, Observers([lags]))
        reported: list[int] = []
        stalls.subscribe(reported.append)
        stalls.start()
        await asyncio.sleep(1)
        assert len(lags.seconds) >= 9
        assert max(lags.seconds) < 0.001
        assert (reported, stalls.lag_s) == ([], 0)
        stall(3)
        await turn()
        assert 2.8 < lags.seconds[-1] <= 3
        assert 3_000 <= reported[0] <= 3_000 + 1_000 * TICK_S + 1, (
            "all of it, and no more than a look too much"
        )
        assert stalls.lag_s < 0.001, "one stall is over when it is seen"
        stall(TICK_S + 2)
        await turn()
        assert stalls.lag_s > 1.8, "two in a row are more work than can be done"
        stalls.stop()
        stall(9)
        stalls.settle()
        await asyncio.sleep(1)
        assert len(reported) == 2

    play(run)


def test_a_stall_is_reported_once_and_before_deadlines_are_checked() -> None:
    async def run() -> None:
        stalls = Stalls(asyncio.get_running_loop().time)
        reported: list[int] = []
        stalls.subscribe(reported.append)
        stalls.start()
        stall(5)
        stalls.settle()
        assert len(reported) == 1
        stalls.settle()
        await asyncio.sleep(1)
        assert len(reported) == 1
        stall(STALL_MIN_S / 2)
        stalls.settle()
        await asyncio.sleep(1)
        assert len(reported) == 1, "so short a stall is nobody's misfortune"

    play(run)


@pytest.mark.parametrize("phase", range(10))
def test_sessions_that_ended_during_a_stall_are_not_over(phase: int) -> None:
    """In some phases the timer of the sessions is due before the one that measures, and comes first."""

    async def run() -> None:
        virtual = await Virtual().start()
        await virtual.pass_time(phase * TICK_S / 10)
        members = [Member(virtual, "g") for _ in range(3)]
        await form(*members)
        generation = members[0].generation
        await virtual.pass_time(SESSION_S - 0.02)
        stall(2 * SESSION_S)
        # What the stall held back arrives after the timers have gone off.
        await virtual.pass_time(0.01)
        for member in members:
            assert await member.heartbeat() == pb.NONE
        assert virtual.service.slot("g").groups.groups["g"].generation == generation
        assert virtual.notices[-1].generation_id < generation

    play(run)


def test_the_first_request_after_a_stall_comes_too_late_for_nobody() -> None:
    async def run() -> None:
        virtual = await Virtual(replace(CONFIG, rebalance_coalesce_ms=250)).start()
        members = [Member(virtual, "g") for _ in range(2)]
        await form(*members)
        stall(3 * SESSION_S)
        assert await members[0].heartbeat() == pb.NONE
        await virtual.pass_time(1)
        assert await members[1].heartbeat() == pb.NONE

    play(run)


def test_a_member_that_is_silent_after_a_stall_as_well_is_out() -> None:
    async def run() -> None:
        virtual = await Virtual().start()
        members = [Member(virtual, "g") for _ in range(2)]
        await form(*members)
        stall(2 * SESSION_S)
        for _ in range(SESSION_S + 1):
            await virtual.pass_time(1)
            await members[0].heartbeat()
        assert await members[1].heartbeat() == pb.UNKNOWN_MEMBER_ID

    play(run)


@pytest.mark.process
def test_a_frozen_coordinator_that_wakes_expels_nobody(coordinator: Coordinator) -> None:
    session_s = 1.5

    async def body() -> None:
        driver = ServerDriver(coordinator.address, DEFAULT)
        members = [Member(driver, "g", session_ms=int(session_s * 1000)) for _ in range(3)]
        await form(*members)
        generation, noticed = members[0].generation, len(driver.notices)
        beats = [asyncio.ensure_future(beat(member)) for member in members]
        await asyncio.sleep(session_s / 2)
        coordinator.signal(signal.SIGSTOP)
        await asyncio.sleep(2 * session_s)
        coordinator.signal(signal.SIGCONT)
        # Long enough for a session that was not moved to end, and for one that was moved too far not to matter.
        await asyncio.sleep(2 * session_s)
        for beating in beats:
            beating.cancel()
        outcomes = await asyncio.gather(*beats, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 3
        assert [await member.heartbeat() for member in members] == [pb.NONE] * 3
        assert {member.generation for member in members} == {generation}
        assert len(driver.notices) == noticed
        await driver.close()

    async def beat(member: Member) -> None:
        while True:
            assert await member.heartbeat() == pb.NONE
            await asyncio.sleep(session_s / 3)

    asyncio.run(body())
