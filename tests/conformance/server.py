"""Rota's coordinator under test, as its members meet it: the real process, one Session stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log.v1 import log_pb2 as log
from rota_proto.log.v1.log_pb2_grpc import LogStub
from tests.conformance.driver import FIRST_PRODUCER, ROTA, FutureCall, Settings, transactional_id
from tests.support.coordinator import OWN_CONNECTION, Coordinator, bearer

FRAMES = {
    pb.JoinGroupRequest: "join_group",
    pb.SyncGroupRequest: "sync_group",
    pb.HeartbeatRequest: "heartbeat",
    pb.LeaveGroupRequest: "leave_group",
    pb.CommitOffsetsRequest: "commit_offsets",
    pb.FetchOffsetsRequest: "fetch_offsets",
    pb.TxnCommitOffsetsRequest: "txn_commit_offsets",
}
# As long as a case at most.
TRANSACTION_MS = 60_000


class Refused(Exception):
    """The server answered a frame with a failure."""


class Login(NamedTuple):
    """TLS, and a token where the server asks for one."""

    encryption: grpc.ChannelCredentials
    token: str = ""


def channel_to(address: str, login: Login | None = None) -> grpc.aio.Channel:
    """A connection: in plain text without a login."""
    if login is None:
        return grpc.aio.insecure_channel(address, options=OWN_CONNECTION)
    # Not gRPC's credentials of calls: a channel of grpc.aio that is closed while a thread of gRPC forgets them waits for that thread
    # without end, and the thread for Python's lock.
    interceptors = [UnaryToken(login.token), StreamToken(login.token)] if login.token else None
    return grpc.aio.secure_channel(address, login.encryption, OWN_CONNECTION, interceptors=interceptors)


def with_token(details: grpc.aio.ClientCallDetails, token: str) -> grpc.aio.ClientCallDetails:
    """Add a bearer token to the metadata of a call."""
    metadata = grpc.aio.Metadata(*(details.metadata or ()), *bearer(token))
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


class UnaryToken(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds the token to single calls."""

    def __init__(self, token: str) -> None:
        self._token = token

    @override
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(with_token(client_call_details, self._token), request)


class StreamToken(grpc.aio.StreamStreamClientInterceptor):
    """Adds the token to sessions."""

    def __init__(self, token: str) -> None:
        self._token = token

    @override
    async def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await continuation(with_token(client_call_details, self._token), request_iterator)


@dataclass(slots=True)
class ServerDriver:
    """One stream for all members of a case, as a sidecar host with many members would use it."""

    address: str
    settings: Settings
    name: str = ROTA
    login: Login | None = None
    notices: list[pb.RebalanceNotice] = field(default_factory=list)
    # Groups that are served elsewhere from now on, and where.
    sent_away: dict[str, str] = field(default_factory=dict)
    _open: dict[int, "asyncio.Future[Message]"] = field(default_factory=dict)
    _frames: "asyncio.Queue[pb.SessionRequest | None]" = field(default_factory=asyncio.Queue)
    _reader: "asyncio.Task[None] | None" = None
    _last_id: int = 0
    # Open transactions by their transactional ids.
    _producers: dict[str, log.InitProducerResponse] = field(default_factory=dict)

    def send(self, request: Message) -> FutureCall:
        if isinstance(request, pb.TxnCommitOffsetsRequest):
            return FutureCall(asyncio.ensure_future(self._take_part(request)))
        return self._send(request)

    def _send(self, request: Message) -> FutureCall:
        if type(request) not in FRAMES:
            return FutureCall(asyncio.ensure_future(self._administer(request)))
        if self._reader is None:
            self._reader = asyncio.create_task(self._run())
        self._last_id += 1
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._open[self._last_id] = answer
        if self._reader.done():
            answer.set_exception(ConnectionError("the stream has ended"))
        frame = pb.SessionRequest(request_id=self._last_id)
        getattr(frame, FRAMES[type(request)]).CopyFrom(request)
        self._frames.put_nowait(frame)
        return FutureCall(answer)

    async def pass_time(self, seconds: float) -> None:
        # The server's clock is the machine's: its time is what is under test.
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """End the stream; what is still open stays unanswered."""
        self._frames.put_nowait(None)
        if self._reader is not None:
            await self._reader

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        """Make a topic, with one partition for the cases."""
        topic = log.CreateTopicsRequest.Topic(
            name=name, partitions=partitions, retention_ms=-1, retention_bytes=-1
        )
        async with channel_to(self.address, self.login) as channel:
            made = await LogStub(channel).CreateTopics(log.CreateTopicsRequest(topics=[topic]))
        assert [each.error_code for each in made.topics] == [pb.NONE]

    async def delete_topic(self, name: str) -> None:
        """Delete it."""
        async with channel_to(self.address, self.login) as channel:
            gone = await LogStub(channel).DeleteTopics(log.DeleteTopicsRequest(names=[name]))
        assert [each.error_code for each in gone.topics] == [pb.NONE]

    async def end_transaction(self, group: str, producer: str = FIRST_PRODUCER, *, committed: bool) -> None:
        """End the transaction of one of the group's producers."""
        name = transactional_id(group, producer)
        made = self._producers.pop(name)
        request = log.EndTransactionRequest(
            transactional_id=name,
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            commit=committed,
        )
        async with channel_to(self.address, self.login) as channel:
            ended = await LogStub(channel).EndTransaction(request)
        assert ended.error_code == pb.NONE, f"the transaction does not end: error {ended.error_code}"

    async def _take_part(self, request: pb.TxnCommitOffsetsRequest) -> Message:
        """The log hands out the ids of producers itself, and takes offsets of a transaction that has begun only."""
        group = request.group_id
        name = transactional_id(group, request.transactional_id)
        if group and name not in self._producers:
            begin = log.InitProducerRequest(transactional_id=name, transaction_timeout_ms=TRANSACTION_MS)
            async with channel_to(self.address, self.login) as channel:
                made = self._producers[name] = await LogStub(channel).InitProducer(begin)
                add = log.AddOffsetsToTransactionRequest(
                    transactional_id=name,
                    producer_id=made.producer_id,
                    producer_epoch=made.producer_epoch,
                    group_id=group,
                    generation_id=request.generation_id,
                    member_id=request.member_id,
                )
                if request.HasField("group_instance_id"):
                    add.group_instance_id = request.group_instance_id
                added = await LogStub(channel).AddOffsetsToTransaction(add)
            assert added.error_code == pb.NONE, f"no transaction for group {group}: error {added.error_code}"
        if group:
            request.transactional_id = name
            request.producer_id = self._producers[name].producer_id
            request.producer_epoch = self._producers[name].producer_epoch
        return await self._send(request).future

    async def _administer(self, request: Message) -> Message:
        """Send a request of an administrator to the admin service."""
        async with channel_to(self.address, self.login) as channel:
            call = getattr(AdminStub(channel), type(request).__name__.removesuffix("Request"))
            reply: Message = await call(request)
            return reply

    async def _run(self) -> None:
        try:
            async with channel_to(self.address, self.login) as channel:
                stream = CoordinatorStub(channel).Session(self._outgoing())
                async for frame in stream:
                    self._receive(frame)
        except grpc.aio.AioRpcError as error:
            # The server is gone; whoever waits for it learns that now, and not after a timeout.
            for waiting in self._open.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError(error.details()))

    async def _outgoing(self) -> AsyncIterator[pb.SessionRequest]:
        while (frame := await self._frames.get()) is not None:
            yield frame

    def _receive(self, frame: pb.SessionResponse) -> None:
        kind = frame.WhichOneof("response")
        if kind == "rebalance_notice":
            self.notices.append(frame.rebalance_notice)
            return
        if kind == "go_away":
            self.sent_away[frame.go_away.group_id] = frame.go_away.address
            return
        answer = self._open.pop(frame.request_id)
        if kind == "failure":
            answer.set_exception(Refused(frame.failure.message))
            answer.exception()  # a case that does not look at a superseded call has no use for it
            return
        assert kind is not None
        answer.set_result(getattr(frame, kind))


@dataclass(slots=True)
class MortalServer(ServerDriver):
    """A server that a case may kill; its address changes with each start."""

    coordinator: Coordinator | None = None

    def __post_init__(self) -> None:
        assert self.coordinator is not None
        self.address = self.coordinator.address

    async def fail_over(self, group: str) -> None:
        """Kill the server, and start it again on its file."""
        assert self.coordinator is not None
        self.coordinator.kill()
        if self._reader is not None:
            await self._reader
        self.coordinator.begin_start()
        await asyncio.to_thread(self.coordinator.end_start)
        self.address, self._reader = self.coordinator.address, None
        # Whoever sent on the old stream may still wait for the next frame.
        self._frames = asyncio.Queue()
