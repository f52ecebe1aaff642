"""The coordinator as a process: crashes, restarts, streams and calls, and what it refuses."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.conformance.driver import DEFAULT
from tests.conformance.members import (
    TOPIC,
    Member,
    answer,
    assignment,
    fetch,
    form,
    leave,
    new_group,
    rebalance,
    rejoin_all,
    settle,
    topic_offsets,
)
from tests.conformance.server import Refused, ServerDriver
from tests.support.coordinator import Coordinator

pytestmark = pytest.mark.process


def with_stream(address: str, body: Callable[[ServerDriver], Coroutine[None, None, None]]) -> None:
    """Run a body with a Session stream of its own."""

    async def run() -> None:
        driver = ServerDriver(address, DEFAULT)
        try:
            await body(driver)
        finally:
            await driver.close()

    asyncio.run(run())


def test_a_crash_loses_no_acknowledged_commit_and_moves_no_stable_group(coordinator: Coordinator) -> None:
    group = new_group()
    members: list[Member] = []

    async def before(driver: ServerDriver) -> None:
        members.extend(Member(driver, group) for _ in range(2))
        await form(*members)
        assert await members[0].commit({0: 41}) == pb.NONE
        assert await members[0].commit({0: 42}) == pb.NONE

    async def after(driver: ServerDriver) -> None:
        for number, member in enumerate(members):
            member.driver = driver
            assert await member.heartbeat() == pb.NONE
            synced = await answer(member.send_sync(), pb.SyncGroupResponse)
            assert synced.assignment == assignment(number)
        assert await fetch(driver, group, 0) == {0: 42}

    with_stream(coordinator.address, before)
    coordinator.kill()
    coordinator.start()
    with_stream(coordinator.address, after)


def test_a_generation_that_was_sent_is_never_issued_again(coordinator: Coordinator) -> None:
    group = new_group()
    members: list[Member] = []

    async def before(driver: ServerDriver) -> None:
        members.extend(Member(driver, group) for _ in range(2))
        await form(*members)
        await rebalance(*members)  # told, and not synced when the crash comes

    async def after(driver: ServerDriver) -> None:
        received = members[0].generation
        for member in members:
            member.driver = driver
            # The group is as it was last synced; who knows of more has to join again.
            assert await member.heartbeat() == pb.ILLEGAL_GENERATION
        await rebalance(*members)
        assert {member.generation for member in members} == {received + 1}

    with_stream(coordinator.address, before)
    coordinator.kill()
    coordinator.start()
    with_stream(coordinator.address, after)


def test_a_rebalance_is_pushed_to_members_on_a_stream(coordinator: Coordinator) -> None:
    async def body(driver: ServerDriver) -> None:
        first, second = (Member(driver, group) for group in [new_group()] * 2)
        await form(first)
        joining = await second.send_second_join()
        assert await joining.is_parked()
        received = [(notice.member_id, notice.generation_id) for notice in driver.notices]
        assert received == [(first.member_id, first.generation)]

    with_stream(coordinator.address, body)


def test_a_member_goes_on_upon_another_stream(coordinator: Coordinator) -> None:
    async def body(driver: ServerDriver) -> None:
        first, second = (Member(driver, group) for group in [new_group()] * 2)
        await form(first)
        other = ServerDriver(coordinator.address, DEFAULT)
        first.driver = other
        assert await first.heartbeat() == pb.NONE
        joining = await second.send_second_join()
        assert await joining.is_parked()
        assert [notice.member_id for notice in other.notices] == [first.member_id]
        assert driver.notices == []
        await other.close()

    with_stream(coordinator.address, body)


def test_a_newer_join_aborts_the_one_that_waits(coordinator: Coordinator) -> None:
    async def body(driver: ServerDriver) -> None:
        leader, follower = (Member(driver, group) for group in [new_group()] * 2)
        await form(leader, follower)
        first = leader.send_join()
        assert await first.is_parked()
        again, other = leader.send_join(), follower.send_join()
        await leader.joined(again)
        await follower.joined(other)
        with pytest.raises(Refused, match="newer request"):
            await first.answer()

    with_stream(coordinator.address, body)


def test_a_frame_that_says_nothing_is_refused_and_the_stream_lives(coordinator: Coordinator) -> None:
    async def body(driver: ServerDriver) -> None:
        member = Member(driver, new_group())
        await form(member)
        empty: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        driver._open[999] = empty  # type: ignore[assignment]
        driver._frames.put_nowait(pb.SessionRequest(request_id=999))
        with pytest.raises(Refused, match="no request known to this version"):
            await empty
        assert await member.heartbeat() == pb.NONE

    with_stream(coordinator.address, body)


def test_calls_say_the_same_as_frames(coordinator: Coordinator) -> None:
    async def body() -> None:
        async with grpc.aio.insecure_channel(coordinator.address) as channel:
            stub = CoordinatorStub(channel)
            found = await stub.FindCoordinator(pb.FindCoordinatorRequest(group_ids=["my-group"]))
            (where,) = found.coordinators
            assert (where.address, where.slot, where.error_code) == (coordinator.address, 12, pb.NONE)
            request = pb.JoinGroupRequest(
                group_id="my-group",
                client_id="cid",
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[pb.Protocol(name="range")],
            )
            first = await stub.JoinGroup(request)
            assert first.error_code == pb.MEMBER_ID_REQUIRED
            request.member_id = first.member_id
            second = await stub.JoinGroup(request)
            assert (second.error_code, second.generation_id) == (pb.NONE, 1)

    asyncio.run(body())


def test_a_watch_shows_every_settled_state_of_a_group(coordinator: Coordinator) -> None:
    async def body(driver: ServerDriver) -> None:
        member = Member(driver, new_group())
        seen: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

        async def watch() -> None:
            async with grpc.aio.insecure_channel(coordinator.address) as channel:
                async for update in AdminStub(channel).WatchGroup(
                    admin.WatchGroupRequest(group_id=member.group)
                ):
                    seen.put_nowait((update.group.state, len(update.group.members)))

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(10):
            assert await seen.get() == (admin.GROUP_STATE_DEAD, 0)
            await form(member)
            while await seen.get() != (admin.GROUP_STATE_STABLE, 1):
                pass
            await member.leave()
            while await seen.get() != (admin.GROUP_STATE_EMPTY, 0):
                pass
        watching.cancel()

    with_stream(coordinator.address, body)


def test_a_watch_tells_what_opened_the_last_round_that_this_process_has_seen(
    coordinator: Coordinator,
) -> None:
    group = new_group()

    async def reason() -> str:
        async with grpc.aio.insecure_channel(coordinator.address) as channel:
            request = admin.WatchGroupRequest(group_id=group)
            async for update in AdminStub(channel).WatchGroup(request, timeout=10):
                return update.reason
        raise AssertionError("a watch begins with the group as it is")

    async def body(driver: ServerDriver) -> None:
        first, second, third = (Member(driver, group) for _ in range(3))
        assert await reason() == ""
        await form(first)
        assert await reason() == f"member {first.member_id} joined: conformance"
        await rebalance(first)
        await settle(first)
        assert await reason() == f"member {first.member_id} rejoined: conformance"
        await first.leave()
        await form(first := Member(driver, group), second, third)
        await second.leave()
        assert await reason() == f"member {second.member_id} left: conformance"
        await rejoin_all([first, third])
        await leave(driver, group, (first.member_id, None), (third.member_id, None))
        assert await reason() == "2 members left: conformance"
        await form(Member(driver, group, instance="i"), Member(driver, group))
        await leave(driver, group, ("", "i"))
        assert await reason() == "member i left: conformance"

    async def after(driver: ServerDriver) -> None:
        assert await reason() == ""

    with_stream(coordinator.address, body)
    coordinator.kill()
    coordinator.start()
    with_stream(coordinator.address, after)


def test_the_slot_table_says_who_owns_what(coordinator: Coordinator) -> None:
    async def body() -> None:
        async with grpc.aio.insecure_channel(coordinator.address) as channel:
            reply = await AdminStub(channel).DescribeSlots(admin.DescribeSlotsRequest())
            assert [slot.slot for slot in reply.slots] == list(range(50))
            assert {slot.state for slot in reply.slots} == {admin.SLOT_STATE_READY}
            assert {slot.owner_address for slot in reply.slots} == {coordinator.address}

    asyncio.run(body())


def test_offsets_of_an_empty_group_can_be_set(coordinator: Coordinator) -> None:
    async def body(driver: ServerDriver) -> None:
        group = new_group()
        request = admin.AlterOffsetsRequest(group_id=group, topics=[topic_offsets({0: 9})])
        reply = await answer(driver.send(request), admin.AlterOffsetsResponse)
        assert reply.topics[0].partitions[0].error_code == pb.NONE
        assert await fetch(driver, group, 0) == {0: 9}
        await form(Member(driver, group))
        refused = await answer(driver.send(request), admin.AlterOffsetsResponse)
        assert refused.error_code == pb.NON_EMPTY_GROUP

    with_stream(coordinator.address, body)


def test_offsets_are_set_with_their_epoch_and_for_known_topics_only(coordinator: Coordinator) -> None:
    async def body(driver: ServerDriver) -> None:
        group = new_group()
        request = admin.AlterOffsetsRequest(
            group_id=group, topics=[topic_offsets({0: 1}, "nowhere"), topic_offsets({0: 9})]
        )
        request.topics[1].partitions[0].leader_epoch = 7
        reply = await answer(driver.send(request), admin.AlterOffsetsResponse)
        errors = {topic.name: topic.partitions[0].error_code for topic in reply.topics}
        assert errors == {"nowhere": pb.UNKNOWN_TOPIC_OR_PARTITION, TOPIC: pb.NONE}
        found = await answer(
            driver.send(pb.FetchOffsetsRequest(group_id=group, all=True)), pb.FetchOffsetsResponse
        )
        assert [(each.name, each.partitions[0].leader_epoch) for each in found.topics] == [(TOPIC, 7)]
        await form(Member(driver, group))
        refused = await answer(driver.send(request), admin.AlterOffsetsResponse)
        assert refused.error_code == pb.NON_EMPTY_GROUP

    with_stream(coordinator.address, body)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rota_coordinator", "--http-listen=127.0.0.1:0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "0.0.0.0:0"], "is not loopback"),
        (["--listen", "7070"], "must be HOST:PORT"),
        (["--store", "mysql://x"], "must be sqlite:PATH"),
        (["--store", "sqlite:/proc/none/c.db"], "/proc/none"),
    ],
)
def test_a_wrong_flag_is_refused_with_one_message(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_second_coordinator_on_the_same_file_is_refused(coordinator: Coordinator) -> None:
    done = run("--store", f"sqlite:{coordinator.file}", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "in use by another coordinator" in done.stderr


def test_a_port_in_use_is_refused_with_one_message(coordinator: Coordinator, tmp_path: Path) -> None:
    done = run("--store", f"sqlite:{tmp_path}/other.db", "--listen", coordinator.address)
    assert done.returncode == 1
    assert "address already in use or not available" in done.stderr.splitlines()[-1]
