"""
Make requests of bytes from outside: a gRPC server installs an interceptor that wraps the handler of every method.

Bytes that are not the method's message become an `UndecodableRequest`, a value that the wrapped handler refuses. gRPC itself
would end the whole stream, and log a traceback for each. A part subclasses the interceptor and says how a handler is wrapped.
"""

import abc
import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from typing_extensions import override

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
else:
    Handler = grpc.RpcMethodHandler
Context = grpc.aio.ServicerContext[Any, Any]
UNDECODABLE = "the bytes are not the message that this method takes"
# The first bytes of a frame are its request_id, as every client writes them: the field's tag, and a varint.
REQUEST_ID_TAG = 0x08
VARINT_BYTES_MAX = 10


class UndecodableRequest(NamedTuple):
    """Stands for a request whose bytes could not be decoded."""

    # The request_id of a frame on a stream; 0: not readable, or the message has none.
    request_id: int


class ValidationInterceptor(grpc.aio.ServerInterceptor, abc.ABC):
    """Invariant: every call of the server goes through the wrapped handler of its method, which is made once."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    @abc.abstractmethod
    def wrapped(self, handler: Handler) -> Handler:
        """Return a handler that validates requests before it passes them on."""

    @override
    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        method = handler_call_details.method
        if method not in self._handlers:
            # None for an unknown method. Its name is not cached, because clients could send any number of names.
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[method] = self.wrapped(handler)
        return self._handlers[method]


def decode(deserialize: Callable[[bytes], Message], data: bytes) -> Message | UndecodableRequest:
    """Deserialize a request."""
    try:
        return deserialize(data)
    except DecodeError:
        return UndecodableRequest(request_id_of(data))


def request_id_of(data: bytes) -> int:
    """Return the request_id of a frame whose other bytes may be anything; 0 if it does not begin with one."""
    if not data or data[0] != REQUEST_ID_TAG:
        return 0
    number = 0
    for index, byte in enumerate(data[1 : 1 + VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF
    return 0


async def abort(context: Context, code: grpc.StatusCode, refusal: Exception) -> NoReturn:
    """End a call with a status and the refusal's message, and keep nothing of its request in memory."""
    try:
        await context.abort(code, str(refusal))
    except grpc.aio.AbortError as aborted:
        # gRPC keeps this error in a reference cycle. Its frames hold the request, megabytes perhaps, until the garbage
        # collector runs: so they are cleared once they have ended.
        asyncio.get_running_loop().call_soon(_clear_frames_of, aborted, refusal)
        raise


def _clear_frames_of(*errors: BaseException) -> None:
    for error in errors:
        traceback.clear_frames(error.__traceback__)
