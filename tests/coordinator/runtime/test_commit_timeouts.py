"""A commit that is not durable in time is answered before its write has ended; what was written counts all the same."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.message import Message

from rota_coordinator.core.group.effects import Call
from rota_coordinator.options import option_error, parse
from rota_coordinator.runtime import overload
from rota_coordinator.runtime.commit_timeouts import TimedOut, timed_out
from rota_coordinator.runtime.overload import Refusal
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import DEFAULT
from tests.conformance.members import TOPIC, Member, fetch, form, topic_offsets
from tests.conformance.server import ServerDriver
from tests.coordinator.store.disk import Fault
from tests.coordinator.virtual import CONFIG, Virtual, play, stall, turn
from tests.log.disk_server import become
from tests.support.coordinator import QUICK, serving
from tests.support.web import get

TIMEOUT_S = 1.0
SLOW_S = 4.0


def calls(*numbers: int) -> list[Call]:
    return [Call(number) for number in numbers]


@pytest.mark.parametrize(
    ("now_s", "expected"),
    [
        (10.0, TimedOut([], 15.0)),
        (14.999, TimedOut([], 15.0)),
        (15.0, TimedOut(calls(1), 17.0)),
        (17.5, TimedOut(calls(1, 2, 3), 18.0)),
        (99.0, TimedOut(calls(1, 2, 3, 4), None)),
    ],
)
def test_commits_time_out_in_the_order_in_which_they_came(now_s: float, expected: TimedOut) -> None:
    arrivals = zip(calls(1, 2, 3, 4), [10.0, 12.0, 12.0, 13.0], strict=True)
    assert timed_out(arrivals, now_s, timeout_s=5.0) == expected


def test_without_commits_nothing_times_out() -> None:
    assert timed_out([], 10.0, timeout_s=5.0) == TimedOut([], None)


def test_the_timeout_is_kafkas_and_at_least_a_millisecond() -> None:
    assert parse([]).commit_timeout_ms == 5_000
    assert "at least 1" in option_error(parse(["--offsets-commit-timeout-ms=0"]))


async def slow() -> tuple[Virtual, Member]:
    """A group with one member, on a store that has become slower than the timeout."""
    virtual = await Virtual(replace(CONFIG, commit_timeout_ms=int(TIMEOUT_S * 1000))).start()
    member = Member(virtual, "g", session_ms=60_000)
    await form(member)
    virtual.store.latency_s = SLOW_S
    return virtual, member


def commit(member: Member, offset: int) -> pb.CommitOffsetsRequest:
    return member.commit_request({0: offset})


def error_of(reply: Message | None) -> pb.ErrorCode.ValueType:
    assert isinstance(reply, pb.CommitOffsetsResponse | pb.TxnCommitOffsetsResponse)
    (topic,) = reply.topics
    assert {each.error_code for each in topic.partitions} == {reply.error_code}
    return reply.error_code


def test_each_commit_is_answered_after_its_own_timeout_and_its_write_counts() -> None:
    async def run() -> None:
        virtual, member = await slow()
        loop = asyncio.get_running_loop()
        begin_s, answered_s = loop.time(), []

        async def send(after_s: float, offset: int) -> None:
            await asyncio.sleep(after_s)
            assert error_of(await virtual.service.submit(commit(member, offset), "")) == pb.REQUEST_TIMED_OUT
            answered_s.append(loop.time() - begin_s)

        await asyncio.gather(*(send(after_s, offset) for offset, after_s in enumerate((0, 0.4, 0.4, 0.9))))
        expected_s = [after_s + TIMEOUT_S for after_s in (0, 0.4, 0.4, 0.9)]
        assert answered_s == pytest.approx(expected_s)
        # A fetch waits for the writes before it, and finds what was written last.
        assert await fetch(virtual, "g") == {0: 3}
        assert loop.time() - begin_s >= SLOW_S
        virtual.store.latency_s = 0.001
        assert await member.commit({0: 7}) == pb.NONE

    play(run)


def test_a_commit_that_is_durable_in_time_is_answered_when_it_is() -> None:
    async def run() -> None:
        virtual, member = await slow()
        virtual.store.latency_s = TIMEOUT_S / 2
        for offset in range(5):
            assert await member.commit({0: offset}) == pb.NONE
        assert await fetch(virtual, "g") == {0: 4}

    play(run)


def test_a_transactional_commit_times_out_as_well() -> None:
    async def run() -> None:
        virtual, _ = await slow()
        request = pb.TxnCommitOffsetsRequest(
            group_id="other", generation_id=-1, producer_id=1, topics=[topic_offsets({0: 1})]
        )
        assert error_of(await virtual.service.submit(request, "")) == pb.REQUEST_TIMED_OUT

    play(run)


def test_only_commits_time_out() -> None:
    async def run() -> None:
        virtual, member = await slow()
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        late = asyncio.ensure_future(virtual.service.submit(commit(member, 1), ""))
        altering = admin.AlterOffsetsRequest(group_id="other", topics=[topic_offsets({0: 1})])
        altered = asyncio.ensure_future(virtual.service.submit(altering, ""))
        await asyncio.sleep(0.1)
        assert await member.heartbeat() == pb.NONE
        assert loop.time() - begin_s < TIMEOUT_S
        assert error_of(await late) == pb.REQUEST_TIMED_OUT
        assert not altered.done()
        reply = await altered
        assert isinstance(reply, admin.AlterOffsetsResponse)
        assert reply.error_code == pb.NONE
        assert loop.time() - begin_s >= SLOW_S

    play(run)


def test_a_commit_counts_against_the_limits_after_its_timeout_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "COMMITS_MAX", 1)

    async def run() -> None:
        virtual, member = await slow()
        assert error_of(await virtual.service.submit(commit(member, 1), "")) == pb.REQUEST_TIMED_OUT
        with pytest.raises(Refusal, match="1 commits are waiting"):
            await virtual.service.submit(commit(member, 1), "")
        await virtual.pass_time(SLOW_S)
        virtual.store.latency_s = 0.001
        # The client repeats it, because it cannot know.
        assert await member.commit({0: 1}) == pb.NONE
        assert await fetch(virtual, "g") == {0: 1}

    play(run)


def test_a_stall_of_the_process_times_no_commit_out() -> None:
    async def run() -> None:
        virtual, member = await slow()
        virtual.store.latency_s = TIMEOUT_S / 2
        waiting = virtual.service.submit(commit(member, 1), "")
        await turn()
        stall(10 * TIMEOUT_S)
        assert error_of(await waiting) == pb.NONE

    play(run)


def test_after_a_stall_a_commit_has_one_timeout_at_most() -> None:
    async def run() -> None:
        virtual, member = await slow()
        waiting = virtual.service.submit(commit(member, 1), "")
        await turn()
        stall(2 * TIMEOUT_S)
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        assert error_of(await waiting) == pb.REQUEST_TIMED_OUT
        assert loop.time() - begin_s == pytest.approx(TIMEOUT_S, abs=0.2)

    play(run)


def test_a_slot_that_stops_answers_its_commits_at_once_and_none_times_out_later() -> None:
    async def run() -> None:
        virtual, member = await slow()
        waiting = virtual.service.submit(commit(member, 1), "")
        virtual.service.slot("g").stop(pb.NOT_COORDINATOR)
        assert error_of(await waiting) == pb.NOT_COORDINATOR
        await virtual.pass_time(2 * TIMEOUT_S)
        assert virtual.faults == []

    play(run)


def test_a_process_without_a_lease_times_no_commit_out_because_the_group_is_anothers() -> None:
    async def run() -> None:
        virtual, member = await slow()
        slot = virtual.service.slot("g")
        until_s = asyncio.get_running_loop().time() + TIMEOUT_S / 2
        slot.replica = slot.replica._replace(may_serve=lambda: asyncio.get_running_loop().time() < until_s)
        waiting = virtual.service.submit(commit(member, 1), "")
        assert error_of(await waiting) == pb.NOT_COORDINATOR

    play(run)


@pytest.mark.process
def test_while_the_disk_hangs_a_commit_is_answered_in_time_and_is_there_afterwards(tmp_path: Path) -> None:
    async def body() -> None:
        driver = ServerDriver(coordinator.address, DEFAULT)
        member = Member(driver, "g", session_ms=120_000)
        await form(member)
        await become(coordinator, Fault.HANGING)
        late = await driver.send(commit(member, 7)).answer(60)
        assert isinstance(late, pb.CommitOffsetsResponse)
        assert error_of(late) == pb.REQUEST_TIMED_OUT
        assert await member.heartbeat() == pb.NONE
        await become(coordinator, Fault.NONE)
        assert await fetch(driver, "g") == {0: 7}
        await driver.close()

    flags = (*QUICK, "--offsets-commit-timeout-ms=500")
    with serving(tmp_path, flags, program="tests.log.disk_server") as coordinator:
        coordinator.make_topic(TOPIC)
        asyncio.run(body())
        _, page = get(coordinator.http, "/metrics")
    assert 'rota_coordinator_requests_total{api="CommitOffsets",error="REQUEST_TIMED_OUT"} 1.0' in page
