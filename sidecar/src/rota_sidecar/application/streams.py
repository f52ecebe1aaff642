"""
The two streams of an application: Attach, which lasts as long as its attachment, and Deliver, which carries records.

Used by `service`; `frames` serves Deliver without gRPC. The loss of Attach, or a failure of Deliver, ends the attachment; its
records in flight are delivered again to the next application. Messages of one stream are handled in order; there is no order between the streams.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_service.validation_interceptor import UndecodableRequest
from rota_sidecar.application.attachment import Attachment
from rota_sidecar.application.port import Deliveries
from rota_sidecar.application.refusals import Refusal, failed_precondition, invalid_argument
from rota_sidecar.application.translating import attached_to, reported_of
from rota_sidecar.application.validation_interceptor import checked

# Timeout of the first message of a stream.
HELLO_S = 10
STREAM = "Deliver stream"

Request = TypeVar("Request", pb.AttachRequest, pb.DeliverRequest)
Frames = AsyncIterator[Message | UndecodableRequest]
Write = Callable[[Message], Awaitable[None]]


async def well_formed(frames: Frames, kind: type[Request]) -> AsyncIterator[Request]:
    """Yield the messages of a stream. Raises a Refusal at the first malformed one."""
    async for frame in frames:
        yield cast("Request", checked(frame))


async def hello(requests: AsyncIterator[Request], method: str) -> Request:
    """Receive the first message, which must be a hello. Raises a Refusal."""
    try:
        async with asyncio.timeout(HELLO_S):
            request = await anext(requests, None)
    except TimeoutError:
        raise no_hello(method) from None
    return hello_of(request, method)


def hello_of(request: Request | None, method: str) -> Request:
    """Return the first message of a stream, which must be a hello. Raises a Refusal."""
    if request is None or request.WhichOneof("request") != "hello":
        raise invalid_argument(f"{method} begins with a hello; send it first, and once")
    return request


def no_hello(method: str) -> Refusal:
    """Return the refusal of a stream whose first message does not come."""
    message = f"no hello within {HELLO_S} s; begin {method} with one"
    return Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message)


async def serve_attach(
    attachment: Attachment,
    deliveries: Deliveries,
    frames_socket: str,
    requests: AsyncIterator[pb.AttachRequest],
    write: Write,
) -> None:
    """
    Send events and receive acknowledgements until the attachment ends. Raises the Refusal that it ends with.

    `frames_socket` serves Deliver in frames too; empty: none does.
    """
    await write(attached_to(attachment.session, deliveries.config, frames_socket))
    receiving = receive_attach(attachment, deliveries, requests)
    await until_ended(attachment, receiving, Sender(attachment.event_queue.next, write))


async def receive_attach(
    attachment: Attachment, deliveries: Deliveries, requests: AsyncIterator[pb.AttachRequest]
) -> None:
    """Handle the messages of Attach after the hello, until the goodbye. Raises a Refusal."""
    async for request in requests:
        match request.WhichOneof("request"):
            case "acknowledge":
                attachment.acknowledge(request.acknowledge.event_id)
            case "report" if attachment.reads_itself:
                deliveries.on_application_event(reported_of(request.report))
            case "report":
                raise failed_precondition(
                    "reports are for applications that read records themselves; attach with reads_itself"
                )
            case "goodbye":
                attachment.is_clean = True
                attachment.end(None)
                return
            case _:
                raise invalid_argument("Attach has one hello; open another stream for another attachment")


async def serve_deliver(
    attachment: Attachment, requests: AsyncIterator[pb.DeliverRequest], write: Write
) -> None:
    """Send records and receive verdicts until the application closes its side. Raises the Refusal that it ends with."""
    attachment.begin(STREAM)
    broken = "it was lost"
    try:
        await until_ended(attachment, receive_deliver(attachment, requests), Sender(attachment.next, write))
        if not attachment.ended.done():
            # gRPC ends the messages of a lost stream as those of a closed one, but to a lost one nothing can be written.
            await write(pb.DeliverResponse())
        broken = ""
    except Refusal as refusal:
        broken = str(refusal)
        raise
    finally:
        attachment.finish()
        if broken:
            end_broken(attachment, broken)


def end_broken(attachment: Attachment, reason: str) -> None:
    """End the attachment whose Deliver stream has ended for this reason."""
    message = f"the {STREAM} of this attachment ended ({reason}); attach again"
    attachment.end(Refusal(grpc.StatusCode.ABORTED, message))


async def receive_deliver(attachment: Attachment, requests: AsyncIterator[pb.DeliverRequest]) -> None:
    """Handle the messages of Deliver after the hello. Raises a Refusal."""
    async for request in requests:
        on_deliver_request(attachment, request)


def on_deliver_request(attachment: Attachment, request: pb.DeliverRequest) -> None:
    """Handle a message of Deliver after the hello. Raises a Refusal."""
    match request.WhichOneof("request"):
        case "credit":
            attachment.grant(request.credit.records)
        case "judgements":
            attachment.on_verdicts(request.judgements.judgements)
        case "acknowledge":
            attachment.acknowledge(request.acknowledge.event_id)
        case _:
            raise invalid_argument("Deliver has one hello; open another stream for another session")


class Sender:
    """Sends messages one by one. Invariant: a message that was taken from `next_message` is sent before the sender stops."""

    def __init__(self, next_message: Callable[[], Awaitable[Message]], write: Write) -> None:
        self._next = next_message
        self._write = write
        self._is_writing = False
        self._is_stopped = False

    async def run(self) -> None:
        """Send messages until stopped."""
        while not self._is_stopped:
            message = await self._next()
            self._is_writing = True
            await self._write(message)
            self._is_writing = False

    def stop(self, running: "asyncio.Task[None]") -> None:
        """Stop after the message in progress, or at once if there is none."""
        self._is_stopped = True
        if not self._is_writing:
            running.cancel()


async def until_ended(attachment: Attachment, receiving: Coroutine[Any, Any, None], sender: Sender) -> None:
    """Receive and send until the application closes its side or the attachment ends. Raises the Refusal or error that ended it."""
    receiver = asyncio.create_task(receiving)
    sending = asyncio.create_task(sender.run())
    ends: set[asyncio.Future[Any]] = {receiver, sending, attachment.ended}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in (receiver, sending):
            if end.done():
                end.result()
        if not attachment.ended.done():
            sender.stop(sending)
            await asyncio.wait(ends - {receiver}, return_when=asyncio.FIRST_COMPLETED)
        refusal = attachment.ended.result() if attachment.ended.done() else None
        if refusal is not None:
            raise refusal
    finally:
        receiver.cancel()
        sending.cancel()
        await asyncio.gather(receiver, sending, return_exceptions=True)
