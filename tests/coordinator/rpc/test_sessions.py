"""The streams: who is told on which, what one may hold, and what becomes of one that does not read."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from rota_coordinator.rpc import sessions
from rota_coordinator.rpc.group_service import make_server
from rota_coordinator.rpc.sessions import UNREAD_S, Sessions
from rota_coordinator.rpc.watch import Watchers
from rota_coordinator.runtime import overload
from rota_coordinator.runtime.overload import MESSAGE_BYTES_MAX, Refusal
from rota_coordinator.security.access_control import AccessControl
from rota_coordinator.security.authenticator import AnonymousAuthenticator
from rota_coordinator.security.connections import Connections
from rota_coordinator.security.limits import Limits
from rota_coordinator.security.policy import AllowAll
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.conformance.members import Member, form
from tests.coordinator.streams import Stream, streams
from tests.coordinator.virtual import Virtual


def test_a_member_is_notified_on_the_stream_on_which_it_last_sent_and_on_no_other() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        first, second = stream(), stream()
        member = Member(first, "g")
        await form(member)
        assert first.members == {member.member_id}
        member.driver = second
        await member.heartbeat()
        assert (first.members, second.members) == (set(), {member.member_id})
        await Member(virtual, "g").send_second_join()
        await asyncio.sleep(0.1)
        assert (len(first.notices), len(second.notices)) == (0, 1)

    streams(body)


@pytest.mark.parametrize(
    "wrong",
    [
        {"generation_id": 99},
        {"generation_id": -1},
        {"group_instance_id": "another"},
    ],
    ids=str,
)
def test_a_refused_request_takes_no_notices_of_its_member(wrong: dict[str, object]) -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        own, other = stream(), stream()
        member = Member(own, "g", instance="i")
        await form(member)
        impostor = member.with_changes(driver=other)
        assert await impostor.heartbeat(**wrong) != pb.NONE
        assert await impostor.commit(None, **wrong) != pb.NONE
        assert (own.members, other.members) == ({member.member_id}, set())

    streams(body)


@pytest.mark.parametrize(
    "goes",
    [
        lambda member: member.leave(),
        lambda member: member.driver.pass_time(20),  # silent
    ],
)
def test_who_left_its_group_is_no_speaker_any_more(
    goes: Callable[[Member], Coroutine[None, None, object]],
) -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        member = Member(one, "g")
        await form(member)
        await goes(member)
        assert one.members == set()

    streams(body)


def test_a_member_that_missed_its_round_is_no_speaker_any_more() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        late, new = Member(one, "g", rebalance_ms=1_000), Member(one, "g", rebalance_ms=1_000)
        await form(late)
        await new.joined(await new.send_second_join())
        assert one.members == {new.member_id}

    streams(body)


def test_the_old_id_of_a_static_member_is_no_speaker_any_more() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        member = Member(one, "g", instance="i")
        await form(member)
        again = Member(one, "g", instance="i")
        await again.joined(again.send_join())
        assert one.members == {again.member_id} != {member.member_id}

    streams(body)


def test_strangers_and_ids_that_were_only_handed_out_are_no_speakers() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        await Member(one, "g").take_id()
        assert await Member(one, "g", member_id="who").heartbeat() == pb.UNKNOWN_MEMBER_ID
        assert one.members == set()

    streams(body)


def test_a_heartbeat_that_tells_of_a_rebalance_moves_the_notices_to_its_stream() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        first, second = stream(), stream()
        member = Member(first, "g")
        await form(member)
        await Member(virtual, "g").send_second_join()
        assert await member.with_changes(driver=second).heartbeat() == pb.REBALANCE_IN_PROGRESS
        assert (first.members, second.members) == (set(), {member.member_id})

    streams(body)


def test_the_latest_request_decides_on_the_stream_even_when_an_earlier_one_is_answered_after_it() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        first, second = stream(), stream()
        member = Member(first, "g")
        await member.joined(await member.send_second_join())
        virtual.store.latency_s = 1
        syncing = member.send_sync({})
        await asyncio.sleep(0.1)
        assert await member.with_changes(driver=second).heartbeat() == pb.NONE
        assert await syncing.is_parked()
        await syncing.answer()
        assert (first.members, second.members) == (set(), {member.member_id})

    streams(body)


def test_an_answer_to_a_stream_that_has_ended_makes_no_speaker() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        first, second = Member(virtual, "g"), Member(one, "g", instance="i")
        await form(first)
        one.ask(second.join_request())
        await asyncio.sleep(0.1)
        one.close()
        await one.running
        await first.joined(first.send_join())
        await asyncio.sleep(0.1)
        assert one.members == set()

    streams(body)


def test_members_that_are_sent_away_are_no_speakers_any_more() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        staying, going = Member(one, "stays"), Member(one, "goes")
        await form(staying)
        await form(going)
        one.session._sessions.go_away({"goes"}, "other:7070")
        await asyncio.sleep(0.1)
        assert one.read[-1].go_away == pb.GoAway(group_id="goes", address="other:7070")
        virtual.service.slot("stays").stop(pb.NOT_COORDINATOR)
        assert await staying.heartbeat() == pb.NOT_COORDINATOR
        assert one.members == set()

    streams(body)


def test_a_refused_commit_is_a_failure_frame_and_the_stream_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "COMMITS_MAX", 1)

    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        member = Member(one, "g")
        await form(member)
        first, second = (one.ask(member.commit_request({0: offset})) for offset in (1, 2))
        failure = (await second).failure
        assert failure.grpc_code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert failure.message == "1 commits are waiting for the store; nothing was committed, retry later"
        assert (await first).commit_offsets.error_code == pb.NONE
        assert await member.heartbeat() == pb.NONE

    streams(body)


def large_commits(member: Member) -> Iterator[pb.CommitOffsetsRequest]:
    """Together they are more than one answer can tell."""
    for start in range(0, 50_000, 10_000):
        request = member.commit_request(dict.fromkeys(range(start, start + 10_000), 1))
        for partition in request.topics[0].partitions:
            partition.metadata = "x" * 100
        yield request


def test_an_answer_that_is_too_large_is_a_failure_frame_and_the_stream_lives() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        member = Member(one, "g")
        for request in large_commits(member):
            assert (await one.ask(request)).commit_offsets.error_code == pb.NONE
        failure = (await one.ask(pb.FetchOffsetsRequest(group_id="g", all=True))).failure
        assert failure.grpc_code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert f"at most {MESSAGE_BYTES_MAX} can be sent, request less at a time" in failure.message
        assert await member.commit({0: 2}) == pb.NONE

    streams(body)


def test_too_many_open_requests_are_refused_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "OPEN_REQUESTS_MAX", 2)

    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        member = Member(one, "g")
        answers = [one.ask(member.commit_request({0: offset})) for offset in range(3)]
        kinds = [(await each).WhichOneof("response") for each in answers]
        assert kinds == ["commit_offsets", "commit_offsets", "failure"]

    streams(body)


def test_a_stream_that_leaves_too_much_unread_is_ended_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "UNREAD_FRAMES_MAX", 5)

    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        member = Member(one, "g")
        await form(member)
        one.reads.clear()
        for _ in range(7):
            one.session.push(pb.SessionResponse(rebalance_notice=pb.RebalanceNotice(group_id="g")))
        with pytest.raises(Refusal, match="frames are unread on this stream; reconnect") as refused:
            await one.running
        assert refused.value.code == "RESOURCE_EXHAUSTED"
        assert one.members == set()
        # Losing the stream is not leaving.
        other = stream()
        member.driver = other
        assert await member.heartbeat() == pb.NONE

    streams(body)


def test_bytes_count_as_much_as_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "UNREAD_BYTES_MAX", 10_000)

    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        one.reads.clear()
        for _ in range(3):
            one.session.push(pb.SessionResponse(failure=pb.Failure(message="x" * 4_000)))
        with pytest.raises(Refusal):
            await one.running

    streams(body)


def test_a_stream_that_reads_nothing_for_long_is_ended() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        loop = asyncio.get_running_loop()
        one = stream()
        one.reads.clear()
        one.session.push(pb.SessionResponse(failure=pb.Failure(message="one")))
        began_s = loop.time()
        with pytest.raises(Refusal):
            await one.running
        assert UNREAD_S <= loop.time() - began_s <= 2 * UNREAD_S

    streams(body)


def test_a_stream_on_which_nothing_happens_stays_and_so_does_a_slow_reader() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        await asyncio.sleep(10.5 * UNREAD_S)
        for _ in range(5):
            one.reads.clear()
            one.session.push(pb.SessionResponse(failure=pb.Failure(message="one")))
            await asyncio.sleep(UNREAD_S - 1)
            one.reads.set()
            await asyncio.sleep(1)
        assert not one.running.done()
        assert len(one.read) == 5

    streams(body)


def test_nothing_more_is_read_from_a_stream_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "HELD_FRAMES", 4)

    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        one.reads.clear()
        answers = [one.ask(pb.FetchOffsetsRequest(group_id="g")) for _ in range(20)]
        await asyncio.sleep(1)
        assert len(one.session._send_queue) < 6
        one.reads.set()
        assert len(await asyncio.gather(*answers)) == 20

    streams(body)


def test_so_many_streams_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "STREAMS_MAX", 1)

    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        first, second = stream(), stream()
        with pytest.raises(Refusal, match="1 streams are open"):
            await second.running
        assert await Member(first, "g").commit({0: 1}) == pb.NONE
        first.close()
        await first.running
        assert await Member(stream(), "g").commit({0: 1}) == pb.NONE

    streams(body)


def served(
    body: Callable[[Virtual, grpc.aio.Channel], Coroutine[None, None, None]],
    limits: Limits = Limits(),  # noqa: B008  frozen
) -> None:
    """Run a body with a real gRPC server in front of a service in memory."""

    async def run() -> None:
        registry = Sessions()
        virtual = await Virtual(notify=registry.notify, member_removed=registry.forget).start()
        server = make_server(
            AccessControl(
                virtual.service,
                AnonymousAuthenticator(),
                AllowAll(),
                lambda message, *_, **__: virtual.reports.append(message),
                Connections(limits),
            ),
            registry,
            Watchers(),
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await body(virtual, channel)
        finally:
            await server.stop(0)
            virtual.stalls.stop()

    asyncio.run(run())


@pytest.mark.process
def test_calls_are_refused_by_their_status(monkeypatch: pytest.MonkeyPatch) -> None:
    # Large commits on a busy machine are a reason of their own.
    monkeypatch.setattr(overload, "LAG_MAX_S", math.inf)

    async def body(virtual: Virtual, channel: grpc.aio.Channel) -> None:
        stub = CoordinatorStub(channel)

        async def refused(call: Awaitable[Message], message: str) -> None:
            with pytest.raises(grpc.aio.AioRpcError, match=message) as error:
                await call
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

        for request in large_commits(Member(virtual, "g")):
            await stub.CommitOffsets(request)
        await refused(
            stub.FetchOffsets(pb.FetchOffsetsRequest(group_id="g", all=True)), "request less at a time"
        )
        monkeypatch.setattr(overload, "COMMITS_MAX", 0)
        await refused(
            stub.CommitOffsets(Member(virtual, "g").commit_request({0: 1})),
            "commits are waiting for the store",
        )
        large = pb.FetchOffsetsRequest(group_id="x" * MESSAGE_BYTES_MAX)
        await refused(stub.FetchOffsets(large), "larger than max")
        monkeypatch.setattr(overload, "GROUPS_MAX", 1)
        another = admin.AlterOffsetsRequest(group_id="another")
        await refused(
            AdminStub(channel).AlterOffsets(another), "has 1 groups, which is the limit; delete unused groups"
        )

    served(body)


@pytest.mark.process
def test_a_client_that_does_not_read_is_notified_when_it_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sessions, "UNREAD_S", 0.5)
    monkeypatch.setattr("rota_coordinator.rpc.group_service.REFUSAL_S", 0.5)

    async def body(virtual: Virtual, channel: grpc.aio.Channel) -> None:
        stream = CoordinatorStub(channel).Session()
        request = pb.SessionRequest(request_id=1)
        for _ in range(1_000):
            request.fetch_offsets.topics.add(name="t" * 1_000)
        # The transport takes some of what the client does not read, then no more from either side.
        blocked = False
        while not blocked:
            writing = asyncio.ensure_future(stream.write(request))
            _, waiting = await asyncio.wait([writing], timeout=3)
            blocked = bool(waiting)
        read = 0

        async def read_all() -> None:
            nonlocal read
            while await stream.read() is not grpc.aio.EOF:
                read += 1

        with pytest.raises(grpc.aio.AioRpcError, match="frames are unread") as ended:
            await read_all()
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert read > 0
        # It is the stream that ended; its connection goes on.
        found = await CoordinatorStub(channel).FindCoordinator(pb.FindCoordinatorRequest(group_ids=["g"]))
        assert found.coordinators[0].error_code == pb.NONE

    served(body)
    assert caplog.records == []


@pytest.mark.process
def test_so_many_calls_run_at_the_same_time() -> None:
    async def body(virtual: Virtual, channel: grpc.aio.Channel) -> None:
        stub = CoordinatorStub(channel)
        stream = stub.Session()
        await stream.write(pb.SessionRequest(request_id=1))
        await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.FetchOffsets(pb.FetchOffsetsRequest(group_id="g"))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "(limit calls)" in (refused.value.details() or "")
        await stream.done_writing()
        while await stream.read() is not grpc.aio.EOF:
            pass
        await stub.FetchOffsets(pb.FetchOffsetsRequest(group_id="g"))

    served(body, Limits(calls=1))
