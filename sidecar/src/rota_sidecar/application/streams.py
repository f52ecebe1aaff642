"""
The two streams of an application: Attach, by which it is there, and Deliver, by which records come.

Used by `service`. Losing Attach, or breaking Deliver, is the end of the application; deliveries give what it held to
the next one. What an application says on one stream is heard in order; between the two there is no order.
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

# For the first message of a stream.
HELLO_S = 10
STREAM = "Deliver stream"

Request = TypeVar("Request", pb.AttachRequest, pb.DeliverRequest)
Frames = AsyncIterator[Message | UndecodableRequest]
Write = Callable[[Message], Awaitable[None]]


async def well_formed(frames: Frames, kind: type[Request]) -> AsyncIterator[Request]:
    """What comes, message by message. Raises a Refusal at the first one that is wrong."""
    async for frame in frames:
        yield cast("Request", checked(frame))


async def hello(requests: AsyncIterator[Request], method: str) -> Request:
    """The first message. Raises a Refusal."""
    try:
        async with asyncio.timeout(HELLO_S):
            request = await anext(requests, None)
    except TimeoutError:
        message = f"no hello came within {HELLO_S} s: begin {method} with one"
        raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message) from None
    if request is None or request.WhichOneof("request") != "hello":
        raise invalid_argument(f"{method} begins with a hello: send it first, and once")
    return request


async def serve_attach(
    attachment: Attachment, deliveries: Deliveries, requests: AsyncIterator[pb.AttachRequest], write: Write
) -> None:
    """Be told, and acknowledge, until it ends. Raises the Refusal that it ends with."""
    await write(attached_to(attachment.session, deliveries.config))
    receiving = receive_attach(attachment, deliveries, requests)
    await until_ended(attachment, receiving, Sender(attachment.event_queue.next, write))


async def receive_attach(
    attachment: Attachment, deliveries: Deliveries, requests: AsyncIterator[pb.AttachRequest]
) -> None:
    """What comes on Attach after the hello. Raises a Refusal."""
    async for request in requests:
        match request.WhichOneof("request"):
            case "acknowledge":
                attachment.acknowledge(request.acknowledge.event_id)
            case "report" if attachment.reads_itself:
                deliveries.on_application_event(reported_of(request.report))
            case "report":
                raise failed_precondition(
                    "a report is for applications that read by themselves: attach with reads_itself"
                )
            case "goodbye":
                attachment.is_clean = True
                attachment.end(None)
                return
            case _:
                raise invalid_argument("Attach has one hello: open another stream for another attachment")


async def serve_deliver(
    attachment: Attachment, requests: AsyncIterator[pb.DeliverRequest], write: Write
) -> None:
    """Hand over, and hear verdicts, until the application closes its side. Raises the Refusal that it ends with."""
    attachment.begin(STREAM)
    broken = "it broke"
    try:
        await until_ended(attachment, receive_deliver(attachment, requests), Sender(attachment.next, write))
        broken = ""
    except Refusal as refusal:
        broken = str(refusal)
        raise
    finally:
        attachment.finish()
        if broken:
            message = f"the {STREAM} of this attachment ended ({broken}): attach anew"
            attachment.end(Refusal(grpc.StatusCode.ABORTED, message))


async def receive_deliver(attachment: Attachment, requests: AsyncIterator[pb.DeliverRequest]) -> None:
    """What comes on Deliver after the hello. Raises a Refusal."""
    async for request in requests:
        match request.WhichOneof("request"):
            case "credit":
                attachment.grant(request.credit.records)
            case "judgements":
                attachment.on_verdicts(request.judgements.judgements)
            case "acknowledge":
                attachment.acknowledge(request.acknowledge.event_id)
            case _:
                raise invalid_argument("Deliver has one hello: open another stream for another session")


class Sender:
    """Sends one message after the other, and is stopped between two of them only: what was taken is sent."""

    def __init__(self, next_message: Callable[[], Awaitable[Message]], write: Write) -> None:
        self._next = next_message
        self._write = write
        self._is_writing = False
        self._is_stopped = False

    async def run(self) -> None:
        """Until it is stopped."""
        while not self._is_stopped:
            message = await self._next()
            self._is_writing = True
            await self._write(message)
            self._is_writing = False

    def stop(self, running: "asyncio.Task[None]") -> None:
        """As soon as the message that it sends is sent."""
        self._is_stopped = True
        if not self._is_writing:
            running.cancel()


async def until_ended(attachment: Attachment, receiving: Coroutine[Any, Any, None], sender: Sender) -> None:
    """Listen and speak until the other side has said all, or the attachment ends. Raises what ended it."""
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
