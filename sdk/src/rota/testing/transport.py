"""Transport to a sidecar in memory, instead of gRPC."""

import asyncio
from typing import Any

from typing_extensions import override

from rota import errors
from rota.consumer.sidecars import Sidecar, Subscription
from rota.consumer.transport import Attachment, SidecarListener, Transport
from rota.testing import unary_calls
from rota.testing.sidecar import ApplicationStream, MemorySidecar
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

AttachMessage = pb.AttachResponse.Event | pb.AttachResponse.PartitionError | pb.AttachResponse.Committed


class MemoryTransport(Transport, Sidecar):
    """Transport to a running in-memory sidecar; used on one event loop."""

    def __init__(self, sidecar: MemorySidecar) -> None:
        self._sidecar = sidecar

    @override
    async def attach(self, hello: pb.AttachRequest.Hello, listener: SidecarListener) -> Attachment:
        attachment = MemoryAttachment(self._sidecar, listener)
        attachment.begin(hello)
        return attachment

    @override
    async def ask(self, call: str, request: Any, within_s: float) -> Any:
        return unary_calls.answer(self._sidecar, call, request)

    @override
    async def open(self, subscription: Subscription) -> Transport:
        return self

    @property
    @override
    def begins_subscribed(self) -> bool:
        return False

    @property
    @override
    def logs_here(self) -> bool:
        return False

    @override
    def ended(self) -> str:
        return ""

    @override
    async def close(self) -> None:
        """Do nothing: there is no connection."""


class MemoryAttachment(Attachment, ApplicationStream):
    """Passes events and records from the sidecar to the listener, through one queue for each stream."""

    def __init__(self, sidecar: MemorySidecar, listener: SidecarListener) -> None:
        self._sidecar = sidecar
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._attached = pb.AttachResponse.Attached()
        self._events: asyncio.Queue[AttachMessage] = asyncio.Queue()
        self._records: asyncio.Queue[pb.DeliverResponse] = asyncio.Queue()
        self._ended: asyncio.Future[errors.RotaError] = self._loop.create_future()
        self._reading: list[asyncio.Task[None]] = []

    def begin(self, hello: pb.AttachRequest.Hello) -> None:
        """Attach to the sidecar. Raises SidecarFailed if another application is attached."""
        self._attached = self._sidecar.attach(hello, self)
        self._reading = [
            asyncio.create_task(self._read_events()),
            asyncio.create_task(self._read_records()),
        ]
        self._sidecar.begin()

    @property
    @override
    def settings(self) -> pb.AttachResponse.Attached:
        return self._attached

    @property
    @override
    def linger_s(self) -> float:
        # No batching delay: tests inspect the state right after a call.
        return 0.0

    @override
    def send_event(self, event: pb.AttachResponse.Event) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    @override
    def send_partition_error(self, error: pb.AttachResponse.PartitionError) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, error)

    @override
    def send_committed(self, committed: pb.AttachResponse.Committed) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, committed)

    @override
    def send_records(self, response: pb.DeliverResponse) -> None:
        self._loop.call_soon_threadsafe(self._records.put_nowait, response)

    async def _read_events(self) -> None:
        while True:
            match await self._events.get():
                case pb.AttachResponse.Event() as event:
                    await self._listener.on_event(event)
                case pb.AttachResponse.PartitionError() as error:
                    await self._listener.on_partition_error(error)
                case pb.AttachResponse.Committed() as committed:
                    await self._listener.on_committed(committed)

    async def _read_records(self) -> None:
        while True:
            await self._listener.on_records(await self._records.get())

    @override
    async def send(self, request: pb.DeliverRequest) -> None:
        self._sidecar.on_request(request)

    @override
    async def wait_ended(self) -> errors.RotaError:
        return await asyncio.shield(self._ended)

    @override
    async def detach(self) -> None:
        self._sidecar.detach(self._attached.session)
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        if not self._ended.done():
            self._ended.set_result(errors.Disconnected("the application has detached"))
