"""
Deliver in frames, on a unix socket without gRPC: the stream of `streams` for the SDK, at a part of its cost.

Used by `process/listeners.py`. A frame is handled where it arrives, and what is dispatched within a turn of the loop is sent at its end,
in one message: there is no task and no queue between the socket and the attachment.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import grpc
from google.protobuf.message import Message
from typing_extensions import override

from rota_proto.sidecar.frames import END, MESSAGE, Frame, FrameReader, FrameTooLarge
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application import streams
from rota_sidecar.application.attachment import Attachment
from rota_sidecar.application.listening import open_socket
from rota_sidecar.application.outgoing import MESSAGE_BYTES_MAX
from rota_sidecar.application.refusals import Refusal, invalid_argument, resource_exhausted
from rota_sidecar.application.validation_interceptor import REFUSAL_S, checked, request_reader

# An application needs one, and another one while it attaches again.
CONNECTIONS_MAX = 16
# Returns the attachment of a session. Raises a Refusal.
Attached = Callable[[int], Attachment]
decoded = request_reader(pb.DeliverRequest.FromString)


class FramesServer:
    """Serves Deliver in frames. Invariant: at most `CONNECTIONS_MAX` connections have a stream."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._open: set[FramedDeliver] = set()
        self._server: asyncio.Server | None = None

    async def start(self, path: Path, mode: int) -> None:
        """Listen on a socket with these permissions, as `listening.bind_socket` does. Raises BindError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, sock=open_socket(path, mode))

    def _connection(self) -> "FramedDeliver":
        return FramedDeliver(self._attached, self._open)

    def stop(self) -> None:
        """Stop listening and cut off open connections; without effect before `start`."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.cut()


class FramedDeliver(asyncio.Protocol):
    """
    Connection that carries one stream. Must be created on a running loop.

    Invariant: it sends one end at most and nothing after it, and has an attachment from the hello to that end or the loss of the
    connection.
    """

    def __init__(self, attached: Attached, open_ones: "set[FramedDeliver]") -> None:
        self._attached = attached
        self._open = open_ones
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(MESSAGE_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._attachment: Attachment | None = None
        # Ends the connection: without a hello, and if the application does not close it after the end.
        self._timer: asyncio.TimerHandle | None = None
        self._will_flush = False
        self._is_paused = False
        self._is_ended = False

    # -------------------------------------------------------------------------------------------- from the loop

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._open) >= CONNECTIONS_MAX:
            self._end(resource_exhausted(f"{CONNECTIONS_MAX} connections are open; close some"))
            return
        self._open.add(self)
        self._timer = self._loop.call_later(streams.HELLO_S, self._end, streams.no_hello("Deliver"))

    @override
    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        try:
            for frame in self._reader.feed(data):
                if not self._is_ended:
                    self._on_frame(frame)
        except FrameTooLarge as large:
            self._end(resource_exhausted(str(large)))
        except Refusal as refusal:
            self._end(refusal)

    @override
    def eof_received(self) -> None:
        # Without waiting until everything is sent: nothing reads it.
        self.cut()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ended = True
        self._stop_timer()
        self._open.discard(self)
        self._release("it was lost")

    @override
    def pause_writing(self) -> None:
        self._is_paused = True

    @override
    def resume_writing(self) -> None:
        self._is_paused = False
        self._flush()

    def cut(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # -------------------------------------------------------------------------------------------- from the application

    def _on_frame(self, frame: Frame) -> None:
        """Handle a frame. Raises a Refusal."""
        if frame.kind == END:
            self._on_end()
            return
        if frame.kind != MESSAGE:
            raise invalid_argument(f"unknown kind of frame {frame.kind}; send {MESSAGE} or {END}")
        request = cast("pb.DeliverRequest", checked(decoded(frame.content)))
        if self._attachment is None:
            self._begin(streams.hello_of(request, "Deliver").hello.session)
        else:
            streams.on_deliver_request(self._attachment, request)

    def _begin(self, session: int) -> None:
        self._stop_timer()
        attachment = self._attached(session)
        attachment.begin(streams.STREAM, self._flush_soon)
        self._attachment = attachment
        attachment.ended.add_done_callback(self._on_attachment_ended)
        self._flush_soon()

    def _on_end(self) -> None:
        if self._attachment is None:
            streams.hello_of(None, "Deliver")
        elif self._attachment.ended.done():
            self._end(self._attachment.ended.result())
        else:
            self._send(MESSAGE, pb.DeliverResponse())
            self._end(None)

    # -------------------------------------------------------------------------------------------- to the application

    def _flush_soon(self) -> None:
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._will_flush = False
        while self._attachment is not None and not self._is_paused:
            message = self._attachment.take_message()
            if message is None:
                return
            self._send(MESSAGE, message)

    def _on_attachment_ended(self, ended: "asyncio.Future[Refusal | None]") -> None:
        # The application may have closed its side in the same turn of the loop.
        if not self._is_ended:
            self._end(ended.result())

    def _end(self, refusal: Refusal | None) -> None:
        """End the stream, and the attachment if it is refused; the application closes the connection."""
        self._is_ended = True
        self._release("" if refusal is None else str(refusal))
        code, message = (grpc.StatusCode.OK, "") if refusal is None else (refusal.code, str(refusal))
        self._send(END, pb.DeliverEnd(code=code.value[0], message=message))
        self._stop_timer()
        self._timer = self._loop.call_later(REFUSAL_S, self.cut)

    def _send(self, kind: int, message: Message) -> None:
        assert self._transport is not None
        self._transport.write(Frame(kind, message.SerializeToString()).encode())

    # --------------------------------------------------------------------------------------------

    def _release(self, broken: str) -> None:
        """Release the attachment; with a reason for which the stream is broken, end it."""
        attachment, self._attachment = self._attachment, None
        if attachment is None:
            return
        attachment.ended.remove_done_callback(self._on_attachment_ended)
        attachment.finish()
        if broken:
            streams.end_broken(attachment, broken)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
