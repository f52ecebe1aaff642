"""
Decode and validate requests before any handler sees them.

The interceptor precedes every call, and authorizes it before its message is decoded: it turns a unary call into a stream
of one message, which is the same on the wire, and which gRPC does not decode by itself. On a stream only the invalid
frame is rejected, so that a client with an invalid string does not disconnect the members that share the stream.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, NoReturn, cast

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.rpc import validate_group, validate_log
from rota_coordinator.runtime.observer import LOG_REQUESTS, Error, error_of
from rota_coordinator.runtime.overload import Refusal, reply_size_refusal
from rota_coordinator.security.access_control import AccessControl, Admitted
from rota_service.validation_interceptor import (
    UNDECODABLE,
    Context,
    Handler,
    UndecodableRequest,
    ValidationInterceptor,
    abort,
    decode,
)

MALFORMED = grpc.StatusCode.INVALID_ARGUMENT


class Received(NamedTuple):
    """A message and its size on the wire, in bytes."""

    message: Message | UndecodableRequest
    size_bytes: int


class AdmissionInterceptor(ValidationInterceptor):
    """Invariant: handlers receive valid requests of admitted calls only."""

    def __init__(self, access_control: AccessControl) -> None:
        super().__init__()
        self._access_control = access_control

    @override
    def wrapped(self, handler: Handler) -> Handler:
        reader = request_reader(handler.request_deserializer)
        if handler.stream_stream is not None:
            session = self._guarded_session(handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(session, reader, handler.response_serializer)
        if handler.unary_stream is not None:
            stream = self._guarded_stream(handler.unary_stream)
            return grpc.stream_stream_rpc_method_handler(stream, reader, handler.response_serializer)
        assert handler.unary_unary is not None, "Rota has no calls that stream requests only"
        call = self._guarded_call(handler.unary_unary)
        return grpc.stream_unary_rpc_method_handler(call, reader, handler.response_serializer)

    def _guarded_call(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        async def call(requests: object, context: Context) -> Message:
            async with self._access_control.admitted(context) as admitted:
                request = await self._message(admitted, context)
                clock = asyncio.get_running_loop().time
                began_s = clock()
                try:
                    reply = cast("Message", await behaviour(request, context))
                except Refusal as refusal:
                    self._count(request, refusal.code, clock() - began_s)
                    await refuse(context, refusal)
                self._count(request, error_of(reply), clock() - began_s)
                too_large = reply_size_refusal(reply.ByteSize())
                if too_large is not None:
                    await refuse(context, too_large)
                return reply

        return call

    def _guarded_stream(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        # Writes by itself: a generator that waits for its next response to be read cannot be ended with a status.
        async def stream(requests: object, context: Context) -> None:
            async with self._access_control.admitted(context) as admitted:
                request = await self._message(admitted, context)
                async for reply in behaviour(request, context):
                    await context.write(reply)

        return stream

    def _guarded_session(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        async def session(frames: AsyncIterator[Received], context: Context) -> None:
            async with self._access_control.admitted(context) as admitted:
                await behaviour(counted(frames, admitted), context)

        return session

    async def _message(self, admitted: Admitted, context: Context) -> Message:
        """Read the only message of a unary call, and reject the call unless it can be decoded and is valid."""
        try:
            async with (
                asyncio.timeout(self._access_control.connections.limits.message_seconds),
                admitted.reading,
            ):
                received = await context.read()
        except TimeoutError:
            limit = (
                f"within {self._access_control.connections.limits.message_seconds} s (limit message-seconds)"
            )
            await refuse(context, Refusal("DEADLINE_EXCEEDED", f"the message did not arrive {limit}"))
        if received is grpc.aio.EOF:
            admitted.cancelled()
            await refuse(context, Refusal(MALFORMED.name, "the call has no message"))
        request, size_bytes = cast("Received", received)
        admitted.message_read(size_bytes)
        if isinstance(request, UndecodableRequest):
            await refuse(context, Refusal(MALFORMED.name, UNDECODABLE))
        wrong = validate_group.validate(request) or validate_log.validate(request)
        if wrong:
            self._access_control.refused(request, MALFORMED.name)
            await refuse(context, Refusal(MALFORMED.name, wrong))
        return request

    def _count(self, request: Message, error: Error, seconds: float) -> None:
        """
        Report a request to the log to the observers; slots report requests to groups, most of which come on streams.
        """
        if isinstance(request, LOG_REQUESTS):
            self._access_control.observers.answered(request, error, seconds)


async def counted(
    frames: AsyncIterator[Received], admitted: Admitted
) -> AsyncIterator[Message | UndecodableRequest]:
    """Yield the frames of a stream, and count their bytes."""
    async for frame in frames:
        admitted.message_read(frame.size_bytes)
        yield frame.message


async def refuse(context: Context, refusal: Refusal) -> NoReturn:
    """Abort a call with the status and message of a refusal."""
    await abort(context, grpc.StatusCode[refusal.code], refusal)


def request_reader(deserialize: Callable[[bytes], Message] | None) -> Callable[[bytes], Received]:
    """Return a deserializer that keeps the size of a request, also of one that cannot be decoded."""
    assert deserialize is not None
    return lambda data: Received(decode(deserialize, data), len(data))
