"""
A hundred thousand requests with anything in them, beside members that must not notice.

One process serves all of it: frames on streams, calls, bytes that are nothing. Everything sent is answered or refused in
a way that the contract knows; nothing of other groups changes, in memory or after a crash.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.validation_interceptor import request_id_of
from tests.conformance.members import subscription, topic_offsets
from tests.coordinator.callers import (
    METHODS,
    Stream,
    as_it_is,
    call,
    channel,
    error_of,
    path,
    session,
)
from tests.coordinator.garbage import Garbage
from tests.support.coordinator import QUICK, Coordinator, bearer, serving

pytestmark = pytest.mark.process
WITHIN_S = 150
FRAMES = 100_000
STREAMS = 10
# Of each stream; some wait for members that never come.
UNANSWERED_MAX = 1_000
LAST = FRAMES * 10
CALLS = 3_000
CALLS_AT_ONCE = 50
STRANGERS = 200
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
# The longest texts and the largest answers pass through; none of them may stay.
GROWTH_KB_MAX = 400_000
TOKENS = """\
fuzz   plain:token-of-fuzz   admin:fuzz.* guarded
owner  plain:token-of-owner  admin:*
"""
FUZZ, OWNER = "token-of-fuzz", "token-of-owner"
FUZZED = tuple(f"fuzz.{number}" for number in range(30))
WORKING = ("own.live", "guarded")
UNCHANGED = ("own.quiet", "own.stable")
# Of each member that works: it was not left waiting.
COMMITS_MIN = 50
# `guarded` is not among them: there the fuzz may do what members do, and so must not do it well.
NAMED = (
    *FUZZED,
    "own.live",
    "own.stable",
    "own.quiet",
    "nowhere",
    "",
    "x" * 250,
    "fuzz.\0",
    "fuzz." + "é" * 300,
)
REFUSED_WITH = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ABORTED}
CALLS_END_WITH = {"OK", "waits", *(status.name for status in REFUSED_WITH)}
# An open join or sync waits for others; whoever asked has a deadline.
WAITS = {"JoinGroup", "SyncGroup"}
PATIENCE_S = 2


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    flags = [
        *QUICK,
        # Any topic will do then, and offsets of all are taken.
        "--no-log",
        f"--tokens-file={tokens}",
        # A connection without an admitted call is not closed, however long its calls take beside the others.
        f"--limits=stranger-seconds={WITHIN_S}",
    ]
    with serving(tmp_path, flags) as coordinator:
        yield coordinator


@dataclass(slots=True)
class Healthy:
    """A member that goes on with its work."""

    group_id: str
    stream: Stream
    member_id: str = ""
    generation: int = 0
    committed: int = 0

    async def join(self) -> None:
        request = pb.JoinGroupRequest(
            group_id=self.group_id,
            group_instance_id="healthy",
            session_timeout_ms=WITHIN_S * 1000,  # one of them says nothing more
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[pb.Protocol(name="range", metadata=subscription())],
        )
        reply = await self.stream.ask(request)
        assert isinstance(reply, pb.JoinGroupResponse)
        assert reply.error_code == pb.NONE
        self.member_id, self.generation = reply.member_id, reply.generation_id
        sync = pb.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        assert error_of(await self.stream.ask(sync)) == pb.NONE

    async def work(self) -> None:
        """Live and commit until cancelled; any error is a failure, and so is a new generation."""
        while True:
            heartbeat = pb.HeartbeatRequest(
                group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
            )
            assert error_of(await self.stream.ask(heartbeat)) == pb.NONE
            await self.commit(self.committed + 1)
            assert self.stream.notices == []
            await asyncio.sleep(0.02)

    async def commit(self, offset: int) -> None:
        commit = pb.CommitOffsetsRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            topics=[topic_offsets({0: offset})],
        )
        assert error_of(await self.stream.ask(commit)) == pb.NONE
        self.committed = offset


def impostors(group_id: str) -> list[Message]:
    """Send requests that only a member may send, as another client; each is refused."""
    someone: dict[str, Any] = {"group_id": group_id, "member_id": "impostor"}
    posing: dict[str, Any] = {"group_id": group_id, "member_id": "impostor", "group_instance_id": "healthy"}
    offsets = [topic_offsets({0: 999_999})]
    valid = pb.JoinGroupRequest(session_timeout_ms=10_000, protocol_type="consumer")
    valid.protocols.add(name="range")
    joins = [pb.JoinGroupRequest(**each) for each in (someone, posing)]
    for join in joins:
        join.MergeFrom(valid)
    return [
        *joins,
        pb.JoinGroupRequest(group_id=group_id, session_timeout_ms=-1),
        pb.JoinGroupRequest(group_id=group_id, session_timeout_ms=10_000, protocol_type="other"),
        *(pb.SyncGroupRequest(**each, protocol_type="consumer", protocol_name="range") for each in (someone, posing)),
        *(pb.HeartbeatRequest(**each, generation_id=1) for each in (someone, posing)),
        pb.LeaveGroupRequest(group_id=group_id, members=[pb.LeavingMember(member_id="impostor")]),
        *(pb.CommitOffsetsRequest(**each, generation_id=number, topics=offsets)
          for each in (someone, posing) for number in (-1, 0, 1, 2**31 - 1)),
        *(pb.TxnCommitOffsetsRequest(**each, generation_id=1, topics=offsets) for each in (someone, posing)),
    ]  # fmt: skip


@dataclass(slots=True)
class Pour:
    """One stream, filled with frames as fast as it takes them; every answer is counted."""

    stream: "grpc.aio.StreamStreamCall[bytes, pb.SessionResponse]"
    expected: Counter[int] = field(default_factory=Counter)
    answered: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    # Told of every member id: what is said under one that exists goes further.
    learnt: Callable[[str], None] = lambda member_id: None
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, frame: bytes) -> None:
        while self.unanswered >= UNANSWERED_MAX:
            self._moved.clear()
            await self._moved.wait()
        try:
            number = pb.SessionRequest.FromString(frame).request_id
        except DecodeError:
            number = request_id_of(frame)
        self.expected[number] += 1
        self.unanswered += 1
        await self.stream.write(frame)

    async def read(self) -> None:
        """Take answers until the stream ends."""
        while isinstance(frame := await self.stream.read(), pb.SessionResponse):
            kind = frame.WhichOneof("response")
            if kind not in ("rebalance_notice", "go_away"):
                self.answered[frame.request_id] += 1
                self.unanswered -= 1
                self.outcomes[outcome(frame)] += 1
                if frame.join_group.member_id:
                    self.learnt(frame.join_group.member_id)
                self._moved.set()

    async def until_all_answered(self) -> None:
        await self.until(lambda: not self.unanswered)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for answers."""
        while not reached():
            self._moved.clear()
            await self._moved.wait()


def outcome(frame: pb.SessionResponse) -> str:
    """Return the outcome of one request in a word."""
    kind = frame.WhichOneof("response")
    assert kind is not None, "an answer says nothing"
    if kind == "failure":
        code = frame.failure.grpc_code
        assert code in {status.value[0] for status in REFUSED_WITH}, frame
        assert frame.failure.message
        return f"failure {code}"
    if kind == "find_coordinator":
        return "answer 0"
    return f"answer {getattr(frame, kind).error_code}"


@asynccontextmanager
async def opened(over: grpc.aio.Channel) -> AsyncIterator[Pour]:
    """Open a stream with a task that reads its responses."""
    stub = over.stream_stream(
        "/rota.coordinator.v1.Coordinator/Session", as_it_is, pb.SessionResponse.FromString
    )
    stream = stub(metadata=bearer(FUZZ))
    await stream.initial_metadata()
    pour = Pour(stream)
    reading = asyncio.create_task(pour.read())
    yield pour
    await stream.done_writing()
    await reading
    assert await stream.code() is grpc.StatusCode.OK


async def fill(pour: Pour, seed: int, count: int) -> None:
    """Whole requests, broken ones, some that are none, and impostors; returns when all were looked at."""
    garbage = Garbage(seed, NAMED)
    pour.learnt = garbage.learn
    posing = [wrapped(0, request) for request in impostors("guarded")]
    for number in range(1, count + 1):
        frame = garbage.frame(number)
        match garbage.chance.randrange(10):
            case 0:
                frame = garbage.broken(frame, keep=len(numbered(number)))
            case 1:
                frame = garbage.broken(frame)
            case 2:
                frame = numbered(number) + garbage.chance.choice(posing)
        await pour.send(frame)
    # A stream's frames are taken one after the other.
    await pour.send(wrapped(LAST, pb.FindCoordinatorRequest()))
    await pour.until(lambda: pour.answered[LAST] == pour.expected[LAST])


async def pour_all(address: str, seed: int) -> Counter[str]:
    """All streams at once; how the requests went."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(channel(address)) for _ in range(STREAMS)]
        pours = [await stack.enter_async_context(opened(over)) for over in channels]
        each = FRAMES // STREAMS
        await asyncio.gather(*(fill(pour, seed * STREAMS + at, each) for at, pour in enumerate(pours)))
        await empty_out(channels[0])
        await asyncio.gather(*(pour.until_all_answered() for pour in pours))
    for pour in pours:
        assert pour.answered == pour.expected
    return sum((pour.outcomes for pour in pours), Counter())


def numbered(number: int) -> bytes:
    """Return the first bytes of a frame."""
    return pb.SessionRequest(request_id=number).SerializeToString()


def wrapped(number: int, request: Message) -> bytes:
    """A request in its frame."""
    frame = pb.SessionRequest(request_id=number)
    for kind in frame.DESCRIPTOR.oneofs_by_name["request"].fields:
        if kind.message_type is request.DESCRIPTOR:
            getattr(frame, kind.name).CopyFrom(request)
    return frame.SerializeToString()


async def call_anything(over: grpc.aio.Channel, garbage: Garbage, method: MethodDescriptor) -> str:
    """One call with anything in it; how it ended."""
    data = garbage.message(GetMessageClass(method.input_type)).SerializeToString()
    if garbage.chance.random() < 0.3:
        data = garbage.broken(data)
    answer = GetMessageClass(method.output_type).FromString
    try:
        if method.server_streaming:
            watch = over.unary_stream(path(method), as_it_is, answer)(data, metadata=bearer(FUZZ))
            await watch.read()
            watch.cancel()
        else:
            stub = over.unary_unary(path(method), as_it_is, answer)
            await stub(data, metadata=bearer(FUZZ), timeout=PATIENCE_S if method.name in WAITS else WITHIN_S)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and method.name in WAITS:
            return "waits"
        return f"{error.code().name}{'' if error.details() else ' without a word'}"
    return "OK"


async def call_everything(over: grpc.aio.Channel, seed: int) -> Counter[str]:
    """Every method of every service, some at once."""
    garbage = Garbage(seed, NAMED)
    methods = [method for method in METHODS if not method.client_streaming]
    outcomes: Counter[str] = Counter()
    left = iter(range(CALLS))

    async def some() -> None:
        for _ in left:
            outcomes[await call_anything(over, garbage, garbage.chance.choice(methods))] += 1

    await asyncio.gather(*(some() for _ in range(CALLS_AT_ONCE)))
    return outcomes


async def knock(address: str, seed: int) -> None:
    """Open connections without gRPC, and make calls without authorization."""
    chance = random.Random(seed)
    host, _, port = address.rpartition(":")
    greetings = (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    )
    for _ in range(STRANGERS):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(chance.choice(greetings) + chance.randbytes(chance.randrange(2_000)))
        writer.write_eof()
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
    async with channel(address) as over:
        for _ in range(STRANGERS):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(over, admin.DescribeSlotsRequest(), f"token-{chance.random()}")
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def send_too_much(address: str) -> None:
    """
    More than a message may hold: the call is refused, and so is the stream, which cannot be read any further.

    Each on a connection of its own: all of them exceed the bytes that one may have received in vain.
    """
    data = bytes(MESSAGE_BYTES_MAX + 1)
    for method in METHODS:
        async with channel(address) as over:
            if method.client_streaming:
                stream = over.stream_stream(path(method), as_it_is, as_it_is)(metadata=bearer(FUZZ))
                await stream.initial_metadata()
                attempt: Awaitable[object] = asyncio.gather(stream.write(data), stream.read())
            elif method.server_streaming:
                one = over.unary_stream(path(method), as_it_is, as_it_is)
                attempt = one(data, metadata=bearer(FUZZ)).read()
            else:
                attempt = over.unary_unary(path(method), as_it_is, as_it_is)(data, metadata=bearer(FUZZ))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await attempt
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, method.name


async def empty_out(over: grpc.aio.Channel) -> None:
    """Remove all members from the fuzzed groups, so that no round waits for them."""
    listed = await call(over, admin.ListGroupsRequest(), OWNER)
    assert isinstance(listed, admin.ListGroupsResponse)
    for group in listed.groups:
        if group.group_id in (*WORKING, *UNCHANGED):
            continue
        found = await call(over, admin.DescribeGroupsRequest(group_ids=[group.group_id]), OWNER)
        assert isinstance(found, admin.DescribeGroupsResponse)
        leaving = [
            pb.LeavingMember(member_id=member.member_id, group_instance_id=member.group_instance_id)
            for member in found.groups[0].members
        ]
        left = await call(over, pb.LeaveGroupRequest(group_id=group.group_id, members=leaving), OWNER)
        assert isinstance(left, pb.LeaveGroupResponse)
        # A session may have ended since they were listed.
        assert {member.error_code for member in left.members} <= {pb.NONE, pb.UNKNOWN_MEMBER_ID}


async def state_of(over: grpc.aio.Channel, *group_ids: str) -> list[bytes]:
    """All that can be seen of groups."""
    looks: list[Message] = [admin.DescribeGroupsRequest(group_ids=group_ids)]
    looks += [pb.FetchOffsetsRequest(group_id=group_id, all=True) for group_id in group_ids]
    answers = [await call(over, look, OWNER) for look in looks]
    return [answer.SerializeToString(deterministic=True) for answer in answers]


def resident_kb(coordinator: Coordinator) -> int:
    """The memory of the process."""
    status = Path(f"/proc/{coordinator.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@asynccontextmanager
async def others(address: str) -> AsyncIterator[dict[str, Healthy]]:
    """Groups that the fuzzer must not change: with active members, with an idle member, and without members."""
    async with channel(address) as over, session(over, OWNER) as live, session(over, OWNER) as guarded:
        quiet = admin.AlterOffsetsRequest(group_id="own.quiet", topics=[topic_offsets({0: 7, 1: 8})])
        assert error_of(await call(over, quiet, OWNER)) == pb.NONE
        healthy = {
            group_id: Healthy(group_id, stream)
            for group_id, stream in {"own.live": live, "guarded": guarded, "own.stable": live}.items()
        }
        for member in healthy.values():
            await member.join()
        await healthy["own.stable"].commit(41)
        yield healthy


async def fuzz(coordinator: Coordinator, seed: int) -> tuple[dict[str, Healthy], list[bytes]]:
    """Everything at once; the members that went on meanwhile, and what has to be the same for ever."""
    async with others(coordinator.address) as healthy, channel(coordinator.address) as over:
        before, before_kb = await state_of(over, *UNCHANGED), resident_kb(coordinator)
        working = [asyncio.create_task(healthy[group_id].work()) for group_id in WORKING]
        poured, called, *_ = await asyncio.gather(
            pour_all(coordinator.address, seed),
            call_everything(over, seed),
            knock(coordinator.address, seed),
            send_too_much(coordinator.address),
        )
        for task in working:
            assert not task.done(), task.exception()
            task.cancel()
        show(poured, called)
        assert set(called) <= CALLS_END_WITH
        assert await state_of(over, *UNCHANGED) == before
        assert resident_kb(coordinator) - before_kb < GROWTH_KB_MAX
    return healthy, before


async def look_again(address: str, healthy: dict[str, Healthy], before: list[bytes]) -> None:
    """After a crash: what was written is what was seen."""
    async with channel(address) as over:
        assert await state_of(over, *UNCHANGED) == before
        for group_id in WORKING:
            found = await call(over, pb.FetchOffsetsRequest(group_id=group_id, all=True), OWNER)
            assert isinstance(found, pb.FetchOffsetsResponse)
            (partition,) = found.topics[0].partitions
            committed = healthy[group_id].committed
            # One more may have been written, and its answer not awaited.
            assert committed <= partition.offset <= committed + 1
            assert committed > COMMITS_MIN


@pytest.mark.soak("fuzz")
def test_any_hundred_thousand_requests_are_answered_and_harm_nobody(
    coordinator: Coordinator, seed: int
) -> None:
    healthy, before = asyncio.run(asyncio.wait_for(fuzz(coordinator, seed), WITHIN_S))
    said = coordinator.log.read_text().splitlines()
    assert [line for line in said if "Traceback" in line] == []
    coordinator.kill()
    coordinator.start()
    asyncio.run(asyncio.wait_for(look_again(coordinator.address, healthy, before), WITHIN_S))


def show(*outcomes: Counter[str]) -> None:
    """Print a summary for the reader of a failed run; pytest keeps it."""
    for name, count in sum(outcomes, Counter[str]()).most_common():
        print(f"{count:8} {name}")  # noqa: T201
