"""The service on a real unix socket, and an application's side of its streams."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from rota_proto.log.columns import unpack
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from rota_sidecar.application.frames import FramesServer
from rota_sidecar.application.listening import bind_socket, frames_path
from rota_sidecar.application.service import ConsumerService, make_server
from rota_sidecar.engines.batch_slicing import BatchSlicer
from tests.sidecar.application.fakes import FakeDeliveries
from tests.sidecar.application.framed import FramedCall, framed_call
from tests.support.coordinator import OWN_CONNECTION

if TYPE_CHECKING:
    from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerAsyncStub

    AttachStream = grpc.aio.StreamStreamCall[pb.AttachRequest, pb.AttachResponse]
    DeliverStream = grpc.aio.StreamStreamCall[pb.DeliverRequest, pb.DeliverResponse] | FramedCall
    Stream = grpc.aio.StreamStreamCall[Any, Any] | FramedCall
else:
    AttachStream = DeliverStream = Stream = object

STORY_S = 10
SOCKET = "app.sock"
Code = grpc.StatusCode
# The client's side takes any size, so that it is the server that keeps the bound.
OPTIONS = (("grpc.max_receive_message_length", -1), *OWN_CONNECTION)


@dataclass
class Talk:
    """An application, the service, and the deliveries behind it."""

    deliveries: FakeDeliveries
    channel: grpc.aio.Channel
    logged: list[tuple[str, str]] = field(default_factory=list)
    # The socket that serves Deliver in frames; None: the application has it over gRPC.
    frames: Path | None = None
    _framed: list[FramedCall] = field(default_factory=list)

    @property
    def stub(self) -> "ConsumerAsyncStub":
        return ConsumerStub(self.channel)

    async def attach(
        self,
        client_id: str = "",
        *,
        reads_itself: bool = False,
        takes_errors: bool = False,
        takes_commits: bool = False,
    ) -> AttachStream:
        """An Attach stream that is open, after its Attached."""
        stream = self.stub.Attach()
        hello = pb.AttachRequest.Hello(
            client_id=client_id,
            reads_itself=reads_itself,
            takes_errors=takes_errors,
            takes_commits=takes_commits,
        )
        await stream.write(pb.AttachRequest(hello=hello))
        response = await stream.read()
        assert isinstance(response, pb.AttachResponse)
        assert response.attached.session
        return stream

    async def deliver(self, session: int = 1) -> DeliverStream:
        """A Deliver stream that has said hello."""
        stream = self.stub.Deliver() if self.frames is None else await self._framed_call(self.frames)
        await stream.write(pb.DeliverRequest(hello=pb.DeliverRequest.Hello(session=session)))
        return stream

    async def _framed_call(self, path: Path) -> FramedCall:
        call = await framed_call(path)
        self._framed.append(call)
        return call

    def close(self) -> None:
        """Close the connections that a story has left open."""
        for call in self._framed:
            call.cancel()

    async def raw(self, method: str, *messages: bytes) -> tuple[Code, str]:
        """Send raw bytes on a stream; return the status and details with which it ends."""
        if self.frames is not None and method == "Deliver":
            return await ended(await self._framed_call(self.frames), *messages)
        stream: Stream = self.channel.stream_stream(f"/rota.sidecar.v1.Consumer/{method}")()
        return await ended(stream, *messages)


async def ended(stream: Stream, *messages: object) -> tuple[Code, str]:
    """Send what is still to be sent; return the status and details with which the stream ends."""
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await to_the_end(stream, *messages)
    return refusal.value.code(), refusal.value.details() or ""


async def to_the_end(stream: Stream, *messages: object) -> None:
    """Send these, and read all that comes."""
    try:
        for message in messages:
            await stream.write(message)
    except asyncio.InvalidStateError:
        # The other side has ended it meanwhile; reading says how.
        pass
    while await stream.read() is not grpc.aio.EOF:
        pass


async def refused(call: Awaitable[object]) -> tuple[Code, str]:
    """Return the status and details of a refused call."""
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call
    return refusal.value.code(), refusal.value.details() or ""


@asynccontextmanager
async def talking(
    folder: Path, deliveries: FakeDeliveries | None = None, *, in_frames: bool = False
) -> AsyncIterator[Talk]:
    """A service that runs, over gRPC and in frames, for an application that has Deliver over one of the two."""
    logged: list[tuple[str, str]] = []
    behind = deliveries or FakeDeliveries()
    beside = frames_path(folder / SOCKET)
    assert beside is not None
    service = ConsumerService(
        behind,
        BatchSlicer(),
        lambda event, message: logged.append((event, message)),
        lambda: behind.samples,
        beside.name,
    )
    server = make_server(service)
    target = bind_socket(server, folder / SOCKET)
    framed = FramesServer(service.attached)
    await framed.start(beside, 0o600)
    await server.start()
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        talk = Talk(behind, channel, logged, beside if in_frames else None)
        yield talk
        talk.close()
    framed.stop()
    await server.stop(None)


Story = Callable[[Talk], Coroutine[Any, Any, None]]
Play = Callable[[Story], None]


def play(folder: Path, story: Story, *, in_frames: bool = False) -> None:
    """Run a story with a service of its own."""

    async def run() -> None:
        async with asyncio.timeout(STORY_S), talking(folder, in_frames=in_frames) as talk:
            await story(talk)

    asyncio.run(run())


def credit(records: int) -> pb.DeliverRequest:
    return pb.DeliverRequest(credit=pb.DeliverRequest.Credit(records=records))


def judged(*judgements: pb.DeliverRequest.Judgement) -> pb.DeliverRequest:
    return pb.DeliverRequest(judgements=pb.DeliverRequest.Judgements(judgements=judgements))


def judgement(
    offset: int,
    verdict: int = pb.ACK,
    *,
    last_offset: int | None = None,
    retry_after_ms: int | None = None,
    reason: str = "",
    about: tuple[str, int, int] = ("orders", 0, 1),
) -> pb.DeliverRequest.Judgement:
    """About a partition, and a ledger of it."""
    topic, partition, delivery_epoch = about
    return pb.DeliverRequest.Judgement(
        partition=at(topic, partition),
        delivery_epoch=delivery_epoch,
        offset=offset,
        last_offset=last_offset,
        verdict=verdict,  # type: ignore[arg-type]  # any number
        retry_after_ms=retry_after_ms,
        reason=reason,
    )


def at(topic: str, partition: int) -> pb.TopicPartition:
    return pb.TopicPartition(topic=topic, partition=partition)


def goodbye() -> pb.AttachRequest:
    return pb.AttachRequest(goodbye=pb.AttachRequest.Goodbye())


def acknowledge(event_id: int) -> pb.AttachRequest:
    return pb.AttachRequest(acknowledge=pb.AttachRequest.Acknowledge(event_id=event_id))


def values(groups: Iterable[pb.PartitionRecords]) -> Sequence[tuple[int, bytes | None]]:
    """The records that are meant: offsets and values."""
    found: list[tuple[int, bytes | None]] = []
    for group in groups:
        for batch in group.batches:
            columns = unpack(batch.payload, batch.count, batch.base_timestamp_ms)
            assert columns.values is not None
            offsets = range(batch.base_offset, batch.base_offset + batch.count)
            found += [
                pair for pair in zip(offsets, columns.values, strict=True) if pair[0] >= group.first_offset
            ]
    return found
