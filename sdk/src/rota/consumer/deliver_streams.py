"""
The stream Deliver of an attachment, used by `transport`: in frames on a unix socket if the sidecar offers that, over gRPC otherwise.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol, cast

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota import errors
from rota.connection import MESSAGE_BYTES_MAX
from rota_proto.sidecar.frames import END, MESSAGE, Frame, FrameReader, FrameTooLarge
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.consumer")
UNIX = "unix:"
# Frames that may wait for the application until no more are read from the socket.
WAITING_MAX = 16
CODES = {code.value[0]: code for code in grpc.StatusCode}


class DeliverStream(Protocol):
    """Sends requests and receives records. `write` and `done_writing` raise Disconnected, reading raises AioRpcError."""

    async def write(self, request: pb.DeliverRequest) -> None:
        """Send a request, after earlier ones; it is sent also if the caller is cancelled."""
        ...

    async def done_writing(self) -> None:
        """Close this side after all requests: the sidecar closes the other one."""
        ...

    def responses(self) -> AsyncIterator[pb.DeliverResponse]:
        """Iterate over what comes, to the end of the stream."""
        ...

    async def cancel(self) -> None:
        """End the stream at once."""
        ...


def frames_path(address: str, name: str) -> Path | None:
    """Return the path of the socket of this name beside the sidecar's own; None without such a socket."""
    if not name or not address.startswith(UNIX):
        return None
    return Path(address.removeprefix(UNIX).removeprefix("//")).with_name(name)


async def open_stream(stub: Any, address: str, frames_socket: str) -> DeliverStream:  # noqa: ANN401  of a generated class
    """Open a stream; `frames_socket` is the name that the sidecar has for the socket with frames, empty without one."""
    path = frames_path(address, frames_socket)
    if path is not None:
        loop = asyncio.get_running_loop()
        try:
            _, stream = await loop.create_unix_connection(lambda: FramedDeliverStream(address), str(path))
        except OSError as error:
            log.warning(
                "%s cannot be opened (%s), so records come over gRPC at a higher cost: mount the whole folder of the sidecar's socket",
                path,
                error.strerror or error,
            )
        else:
            return stream
    return GrpcDeliverStream(address, stub.Deliver())


class GrpcDeliverStream(DeliverStream):
    """A call over gRPC."""

    def __init__(self, address: str, call: Any) -> None:  # noqa: ANN401  of gRPC
        self._address = address
        self._call = call
        self._sending = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    @override
    async def write(self, request: pb.DeliverRequest) -> None:
        # gRPC ends the stream when a write is cancelled: a caller that is cancelled would end the attachment.
        writing = asyncio.create_task(self._write(request))
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        await asyncio.shield(writing)

    async def _write(self, request: pb.DeliverRequest) -> None:
        try:
            async with self._sending:
                await self._call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise closed(self._address) from error

    def _written(self, writing: "asyncio.Task[None]") -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            # Waiting calls raise the error; the attachment's end has it for the others.
            writing.exception()

    @override
    async def done_writing(self) -> None:
        try:
            async with self._sending:
                await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise closed(self._address) from error

    @override
    async def responses(self) -> AsyncIterator[pb.DeliverResponse]:
        while isinstance(response := await self._call.read(), pb.DeliverResponse):
            yield response
        await raise_status(self._call)

    @override
    async def cancel(self) -> None:
        self._call.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)


class FramedDeliverStream(asyncio.Protocol, DeliverStream):
    """
    A connection to the socket with frames. Must be created on a running loop.

    Invariant: frames are read in order, and the socket is not read while more than `WAITING_MAX` of them wait.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._reader = FrameReader(MESSAGE_BYTES_MAX)
        self._waiting: deque[Frame] = deque()
        self._news = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._transport: asyncio.Transport | None = None
        # Reason why nothing can be sent or received any more; empty: none.
        self._lost = ""

    # From the loop

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        try:
            self._waiting += self._reader.feed(data)
        except FrameTooLarge as large:
            self._on_lost(str(large))
        self._news.set()
        if len(self._waiting) > WAITING_MAX:
            self._open.pause_reading()

    @override
    def eof_received(self) -> None:
        self._on_lost("the sidecar closed the connection")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(str(exc or "the connection was closed"))

    @override
    def pause_writing(self) -> None:
        self._has_room.clear()

    @override
    def resume_writing(self) -> None:
        self._has_room.set()

    # From the attachment

    @override
    async def write(self, request: pb.DeliverRequest) -> None:
        self._send(MESSAGE, request)
        await self._has_room.wait()

    @override
    async def done_writing(self) -> None:
        self._send(END, pb.DeliverEnd())

    @override
    async def responses(self) -> AsyncIterator[pb.DeliverResponse]:
        while True:
            while self._waiting:
                frame = self._waiting.popleft()
                if frame.kind == END:
                    self._on_lost("the sidecar ended the stream")
                    _raise_unless_ok(pb.DeliverEnd.FromString(frame.content))
                    return
                yield pb.DeliverResponse.FromString(frame.content)
            if self._lost:
                raise _rpc_error(grpc.StatusCode.UNAVAILABLE, self._lost)
            self._news.clear()
            self._open.resume_reading()
            await self._news.wait()

    @override
    async def cancel(self) -> None:
        self._open.abort()

    def _send(self, kind: int, message: Message) -> None:
        if self._lost:
            raise closed(self._address)
        self._open.write(Frame(kind, message.SerializeToString()).encode())

    def _on_lost(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._open.abort()
        self._has_room.set()
        self._news.set()

    @property
    def _open(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


def closed(address: str) -> errors.Disconnected:
    """Return the error of a stream that takes no more requests."""
    return errors.Disconnected(f"the sidecar at {address} closed the attachment")


async def raise_status(call: Any) -> None:  # noqa: ANN401  a call of any kind
    """Raise AioRpcError if a call has ended with a status other than OK."""
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), await call.details()
        )


def _raise_unless_ok(end: pb.DeliverEnd) -> None:
    code = CODES.get(end.code, grpc.StatusCode.UNKNOWN)
    if code is not grpc.StatusCode.OK:
        raise _rpc_error(code, end.message)


def _rpc_error(code: grpc.StatusCode, message: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), message)
