"""
The interceptor that decodes and validates the application's requests, and turns refusals into gRPC statuses.

It wraps every call: undecodable and malformed requests do not reach the handler. On streams, `streams` validates each
message.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, cast

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_service.validation_interceptor import (
    UNDECODABLE,
    Context,
    Handler,
    UndecodableRequest,
    ValidationInterceptor,
    abort,
    decode,
)
from rota_sidecar.application.outgoing import MESSAGE_BYTES_MAX
from rota_sidecar.application.refusals import Refusal, invalid_argument, resource_exhausted
from rota_sidecar.application.wellformed import fault
from rota_sidecar.engines.port import Refused, Unreachable

# Timeout in seconds for a refusal to a client that does not read.
REFUSAL_S = 5


class ApplicationInterceptor(ValidationInterceptor):
    """Invariant: a handler gets requests that are well formed, and every refusal leaves as a gRPC status."""

    @override
    def wrapped(self, handler: Handler) -> Handler:
        reader = request_reader(handler.request_deserializer)
        if handler.stream_stream is not None:
            stream = guarded_stream(handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(stream, reader, handler.response_serializer)
        assert handler.unary_unary is not None, "the service has unary calls, and streams in both directions"
        call = guarded_call(handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(call, reader, handler.response_serializer)


def guarded_call(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the handler of a unary call."""

    async def call(request: Message | UndecodableRequest, context: Context) -> Message:
        try:
            reply = cast("Message", await behaviour(checked(request), context))
            return fitting(reply)
        except (Refusal, Unreachable, Refused) as problem:
            await refuse(context, refusal_for(problem))

    return call


def guarded_stream(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the handler of a stream, which writes its responses itself."""

    async def stream(requests: object, context: Context) -> None:
        try:
            await behaviour(requests, context)
        except Refusal as refusal:
            try:
                async with asyncio.timeout(REFUSAL_S):
                    await refuse(context, refusal)
            except TimeoutError:
                # The status waits behind messages that the client does not read; returning ends the call without it.
                return

    return stream


async def refuse(context: Context, refusal: Refusal) -> NoReturn:
    """End a call with a refusal."""
    await abort(context, refusal.code, refusal)


def checked(request: Message | UndecodableRequest) -> Message:
    """Return the request if it is decoded and valid. Raises a Refusal."""
    if isinstance(request, UndecodableRequest):
        raise invalid_argument(UNDECODABLE)
    wrong = fault(request)
    if wrong:
        raise invalid_argument(wrong)
    return request


def fitting(reply: Message) -> Message:
    """Return the response if it does not exceed the message size. Raises a Refusal."""
    size = reply.ByteSize()
    if size > MESSAGE_BYTES_MAX:
        raise resource_exhausted(
            f"the response has {size} bytes, the limit is {MESSAGE_BYTES_MAX}; request less at a time"
        )
    return reply


def refusal_for(problem: Refusal | Unreachable | Refused) -> Refusal:
    """Return the refusal for a failure of the backend."""
    match problem:
        case Refusal():
            return problem
        case Unreachable():
            return Refusal(grpc.StatusCode.UNAVAILABLE, str(problem))
        case Refused():
            return Refusal(grpc.StatusCode.PERMISSION_DENIED, str(problem))


def request_reader(
    deserialize: Callable[[bytes], Message] | None,
) -> Callable[[bytes], Message | UndecodableRequest]:
    """Return a deserializer that returns an UndecodableRequest for bytes that cannot be decoded."""
    assert deserialize is not None
    return partial(decode, deserialize)
