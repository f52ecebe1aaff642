"""More work than can be done: commits are refused, heartbeats are not; and what was accepted is kept."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rota_coordinator.runtime import overload
from rota_coordinator.runtime.calls import Answer
from rota_coordinator.runtime.overload import (
    COMMIT_BYTES_MAX,
    COMMITS_MAX,
    LAG_MAX_S,
    TICK_S,
    Load,
    Refusal,
    overload_refusal,
)
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import DEFAULT
from tests.conformance.members import TOPIC, Member, answer, fetch, form
from tests.conformance.server import Refused, ServerDriver
from tests.coordinator.store.disk import Fault
from tests.coordinator.virtual import CONFIG, Memory, Virtual, play, stall, turn
from tests.log.disk_server import become
from tests.support.coordinator import QUICK, serving
from tests.support.web import get

SLOW_S = 2.0
# Answers to commits come when they are written, however late.
PATIENT = replace(CONFIG, commit_timeout_ms=600_000)


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (Load(COMMITS_MAX - 1, COMMIT_BYTES_MAX - 1, LAG_MAX_S - 0.01), ""),
        (Load(COMMITS_MAX, 0, 0), "5000 commits are waiting for the store"),
        (Load(1, COMMIT_BYTES_MAX, 0), "33554432 bytes of commits are waiting for the store"),
        (Load(0, 0, LAG_MAX_S), "the event loop of this coordinator is 0.5 s late"),
    ],
)
def test_a_commit_is_one_too_many_when_too_much_waits(load: Load, reason: str) -> None:
    refusal = overload_refusal(load)
    if not reason:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal.code == "RESOURCE_EXHAUSTED"
    assert str(refusal) == f"{reason}; nothing was committed, retry later"


def commit(member: Member, partition: int, offset: int) -> pb.CommitOffsetsRequest:
    return member.commit_request({partition: offset})


def test_on_a_slow_store_commits_are_shed_and_heartbeats_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overload, "COMMITS_MAX", 20)

    async def run() -> None:
        virtual = await Virtual(PATIENT).start()
        loop = asyncio.get_running_loop()
        member = Member(virtual, "g", session_ms=5_000)
        await form(member)
        virtual.store.latency_s = SLOW_S
        accepted: dict[int, asyncio.Future[object]] = {}
        shed_count = 0
        for partition in range(50):
            future = virtual.service.submit(commit(member, partition, partition), "")
            if future.done() and isinstance(future.exception(), Refusal):
                shed_count += 1
            else:
                accepted[partition] = asyncio.ensure_future(future)
        assert (len(accepted), shed_count) == (20, 30)
        # The store needs eight sessions for what it has; nobody's heartbeat waits for that.
        while not all(each.done() for each in accepted.values()):
            asked_s = loop.time()
            assert await member.heartbeat() == pb.NONE
            assert loop.time() == asked_s
            await asyncio.sleep(1)
        replies = [await each for each in accepted.values()]
        assert {reply.error_code for reply in replies if isinstance(reply, pb.CommitOffsetsResponse)} == {
            pb.NONE
        }
        assert loop.time() > 20 * SLOW_S
        # No accepted commit is lost, no other one was done, and there is room again.
        assert await fetch(virtual, "g") == {partition: partition for partition in accepted}
        virtual.store.latency_s = 0.001
        assert await member.commit({49: 49}) == pb.NONE

    play(run)


def test_joins_and_syncs_go_on_while_commits_are_shed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "COMMITS_MAX", 1)

    async def run() -> None:
        virtual = await Virtual().start()
        first, second = (Member(virtual, "g", rebalance_ms=60_000) for _ in range(2))
        await form(first)
        virtual.store.latency_s = SLOW_S
        waiting = asyncio.ensure_future(virtual.service.submit(commit(first, 0, 1), ""))
        with pytest.raises(Refusal):
            await virtual.service.submit(commit(first, 0, 2), "")
        joining = await second.send_second_join()
        await first.joined(first.send_join())
        await second.joined(joining)
        assert second.generation == first.generation
        assert waiting.done()

    play(run)


def test_large_commits_count_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "COMMIT_BYTES_MAX", 10_000)

    async def run() -> None:
        virtual = await Virtual().start()
        member = Member(virtual, "g")
        await form(member)
        large = member.commit_request({0: 1})
        large.topics[0].partitions[0].metadata = "x" * 4_000
        waiting = [asyncio.ensure_future(virtual.service.submit(large, "")) for _ in range(3)]
        with pytest.raises(Refusal, match="bytes of commits are waiting"):
            await virtual.service.submit(large, "")
        await asyncio.gather(*waiting)
        assert await member.commit({0: 2}) == pb.NONE

    play(run)


def stop(virtual: Virtual, waiting: list[Answer]) -> None:
    virtual.service.slot("g").stop(pb.NOT_COORDINATOR)


def cancel(virtual: Virtual, waiting: list[Answer]) -> None:
    for each in waiting:
        each.cancel()


@pytest.mark.parametrize("end_calls", [stop, cancel])
def test_a_commit_counts_until_its_write_has_ended_whatever_became_of_its_call(
    monkeypatch: pytest.MonkeyPatch, end_calls: Callable[[Virtual, list[Answer]], None]
) -> None:
    monkeypatch.setattr(overload, "COMMITS_MAX", 2)

    async def run() -> None:
        virtual = await Virtual().start()
        member = Member(virtual, "g", session_ms=60_000)
        await form(member)
        written = virtual.store.appends
        virtual.store.latency_s = SLOW_S
        waiting = [virtual.service.submit(commit(member, 0, offset), "") for offset in range(2)]
        end_calls(virtual, waiting)
        await turn()
        assert all(each.done() for each in waiting)
        with pytest.raises(Refusal, match="2 commits are waiting"):
            await virtual.service.submit(commit(member, 0, 2), "")
        await virtual.pass_time(3 * SLOW_S)
        assert virtual.store.appends == written + 2
        # There is room again.
        await virtual.service.submit(commit(member, 0, 3), "")

    play(run)


def test_a_loop_that_is_behind_sheds_commits_until_it_has_caught_up() -> None:
    async def run() -> None:
        virtual = await Virtual().start()
        member = Member(virtual, "g")
        await form(member)
        for _ in range(2):
            stall(TICK_S + 1)
            await turn()
        with pytest.raises(Refusal, match="event loop"):
            await virtual.service.submit(commit(member, 0, 1), "")
        assert await member.heartbeat() == pb.NONE
        await virtual.pass_time(2 * TICK_S)
        assert await member.commit({0: 1}) == pb.NONE

    play(run)


def test_a_shed_transactional_commit_is_refused_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "COMMITS_MAX", 0)

    async def run() -> None:
        virtual = await Virtual().start()
        request = pb.TxnCommitOffsetsRequest(group_id="g", generation_id=-1, producer_id=1)
        with pytest.raises(Refusal):
            await virtual.service.submit(request, "")
        # Reading is no commit.
        reply = await answer(virtual.send(pb.FetchOffsetsRequest(group_id="g")), pb.FetchOffsetsResponse)
        assert reply.error_code == pb.NONE

    play(run)


def test_only_a_heartbeat_that_says_nothing_new_overtakes_writes() -> None:
    """A removal that is not written yet is not in any response."""

    async def run() -> None:
        virtual = await Virtual(store=Memory()).start()
        first, second = (Member(virtual, "g") for _ in range(2))
        await form(first, second)
        virtual.store.latency_s = SLOW_S
        loop = asyncio.get_running_loop()
        writing = asyncio.ensure_future(virtual.service.submit(commit(first, 0, 1), ""))
        leaving = asyncio.ensure_future(second.leave())
        await asyncio.sleep(0.1)
        asked_s = loop.time()
        assert await second.heartbeat() == pb.UNKNOWN_MEMBER_ID
        assert writing.done()
        assert loop.time() - asked_s > SLOW_S / 2
        await leaving

    play(run)


@pytest.mark.process
def test_while_the_disk_does_not_answer_commits_are_shed_and_heartbeats_answered(tmp_path: Path) -> None:
    too_many = 1_000
    partitions = range(COMMITS_MAX + too_many)

    async def body() -> int:
        driver = ServerDriver(coordinator.address, DEFAULT)
        member = Member(driver, "g", session_ms=120_000)
        await form(member)
        await become(coordinator, Fault.HANGING)
        calls = [driver.send(commit(member, partition, partition)).answer(120) for partition in partitions]
        outcomes = asyncio.gather(*calls, return_exceptions=True)
        for _ in range(20):
            assert await member.heartbeat() == pb.NONE
        assert not outcomes.done()
        await become(coordinator, Fault.NONE)
        results = await outcomes
        shed = [result for result in results if isinstance(result, Refused)]
        accepted = {at: at for at in partitions if isinstance(results[at], pb.CommitOffsetsResponse)}
        assert len(shed) + len(accepted) == len(partitions)
        assert len(shed) >= too_many
        assert "nothing was committed, retry" in str(shed[0])
        assert await fetch(driver, "g") == accepted
        assert await member.heartbeat() == pb.NONE
        assert await member.commit({0: 7}) == pb.NONE
        await driver.close()
        return len(shed)

    flags = (*QUICK, f"--offsets-commit-timeout-ms={PATIENT.commit_timeout_ms}")
    with serving(tmp_path, flags, program="tests.log.disk_server") as coordinator:
        coordinator.make_topic(TOPIC)
        shed_count = asyncio.run(body())
        status, page = get(coordinator.http, "/metrics")
    assert status == 200
    refused = 'rota_coordinator_requests_total{api="CommitOffsets",error="RESOURCE_EXHAUSTED"}'
    assert f"{refused} {float(shed_count)}" in page
