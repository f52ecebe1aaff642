"""Callers of a coordinator with something to show: a token, a certificate, trust in an authority, or none of these."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.server import FRAMES
from tests.support.certificates import Issued
from tests.support.coordinator import OWN_CONNECTION, bearer

WITHIN_S = 60
# A call may take as long as WITHIN_S, and stories have several.
STORY_S = 120
SERVICES = (pb.DESCRIPTOR.services_by_name["Coordinator"], admin.DESCRIPTOR.services_by_name["Admin"])
METHODS: tuple[MethodDescriptor, ...] = tuple(method for service in SERVICES for method in service.methods)
UNARY = {method.input_type.full_name: method for method in METHODS if not method.server_streaming}


def run(body: Coroutine[None, None, None]) -> None:
    """A story with callers, that comes to an end."""

    async def bounded() -> None:
        async with asyncio.timeout(STORY_S):
            await body

    asyncio.run(bounded())


def channel(address: str, *, trusts: Path | None = None, shows: Issued | None = None) -> grpc.aio.Channel:
    """A connection of its own: over TLS when it trusts an authority."""
    if trusts is None:
        return grpc.aio.insecure_channel(address, options=OWN_CONNECTION)
    credentials = grpc.ssl_channel_credentials(
        trusts.read_bytes(),
        None if shows is None else shows.key.read_bytes(),
        None if shows is None else shows.certificate.read_bytes(),
    )
    return grpc.aio.secure_channel(address, credentials, options=OWN_CONNECTION)


async def call(over: grpc.aio.Channel, request: Message, token: str = "") -> Message:
    """The answer to a request, as a call of its own."""
    method = UNARY[request.DESCRIPTOR.full_name]
    stub = over.unary_unary(
        path(method),
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return await stub(request, metadata=bearer(token), timeout=WITHIN_S)


async def refusal(
    over: grpc.aio.Channel, method: MethodDescriptor, metadata: Sequence[tuple[str, str]]
) -> tuple[grpc.StatusCode, str]:
    """Return the refusal of a call without content, for any kind of method."""
    try:
        if method.client_streaming:
            # Nothing is written: gRPC's client may take a stream that ended before its first write for broken.
            both = over.stream_stream(path(method), as_it_is, as_it_is)(metadata=metadata)
            await both.read()
        elif method.server_streaming:
            await over.unary_stream(path(method), as_it_is, as_it_is)(b"", metadata=metadata).read()
        else:
            await over.unary_unary(path(method), as_it_is, as_it_is)(b"", metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def as_it_is(message: bytes) -> bytes:
    """Serializes what is bytes already."""
    return message


def path(method: MethodDescriptor) -> str:
    """The method as gRPC names it."""
    return f"/{method.containing_service.full_name}/{method.name}"


class Stream:
    """A Session stream on which one request is asked after the other."""

    def __init__(self, stream: "grpc.aio.StreamStreamCall[Message, pb.SessionResponse]") -> None:
        self._stream = stream
        self._last_id = 0
        self.notices: list[pb.RebalanceNotice] = []

    async def ask(self, request: Message) -> Message:
        """The answer in a frame."""
        self._last_id += 1
        frame = pb.SessionRequest(request_id=self._last_id)
        getattr(frame, FRAMES.get(type(request), "find_coordinator")).CopyFrom(request)
        await self._stream.write(frame)
        while True:
            answer = await self._next()
            if answer.request_id == self._last_id:
                kind = answer.WhichOneof("response")
                assert kind is not None
                return cast("Message", getattr(answer, kind))

    async def notice(self) -> pb.RebalanceNotice:
        """The next notice."""
        while not self.notices:
            await self._next()
        return self.notices.pop(0)

    async def _next(self) -> pb.SessionResponse:
        frame = await self._stream.read()
        assert isinstance(frame, pb.SessionResponse), "the stream has ended"
        if frame.WhichOneof("response") == "rebalance_notice":
            self.notices.append(frame.rebalance_notice)
        return frame


@asynccontextmanager
async def session(
    over: grpc.aio.Channel, token: str = "", *, metadata: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[Stream]:
    """A stream, ended with the block; `metadata` comes after the token."""
    stub = over.stream_stream(
        "/rota.coordinator.v1.Coordinator/Session",
        request_serializer=pb.SessionRequest.SerializeToString,
        response_deserializer=pb.SessionResponse.FromString,
    )
    stream = stub(metadata=(*bearer(token), *metadata))
    # Comes when the caller was let in.
    await stream.initial_metadata()
    try:
        yield Stream(stream)
    finally:
        stream.cancel()


def error_of(answer: Message) -> int:
    """The error of an answer about one group, wherever its kind carries it."""
    for field in ("groups", "coordinators"):
        if field in answer.DESCRIPTOR.fields_by_name:
            (answer,) = getattr(answer, field)
    return cast("int", answer.error_code)  # type: ignore[attr-defined]
