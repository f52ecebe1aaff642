"""
A sidecar's gRPC service over partitions in memory: what the real one does on the wire, and no more.

It is stricter than the real one where the contract says so: an application that breaks its rules is a failed test.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio
from typing_extensions import override

from rota.connection import background
from rota.testing import unary_calls
from rota.testing.sidecar import ApplicationStream, MemorySidecar
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import add_ConsumerServicer_to_server

if TYPE_CHECKING:
    from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerServicer


class Wire(ApplicationStream):
    """Responses of the sidecar, queued for the two streams of one application."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[pb.AttachResponse | None] = asyncio.Queue()
        self.records: asyncio.Queue[pb.DeliverResponse | None] = asyncio.Queue()
        self.session = 0
        self.said_goodbye = False

    @override
    def send_event(self, event: pb.AttachResponse.Event) -> None:
        self._loop.call_soon_threadsafe(self.events.put_nowait, pb.AttachResponse(event=event))

    @override
    def send_partition_error(self, error: pb.AttachResponse.PartitionError) -> None:
        self._loop.call_soon_threadsafe(self.events.put_nowait, pb.AttachResponse(error=error))

    @override
    def send_committed(self, committed: pb.AttachResponse.Committed) -> None:
        self._loop.call_soon_threadsafe(self.events.put_nowait, pb.AttachResponse(committed=committed))

    @override
    def send_records(self, response: pb.DeliverResponse) -> None:
        self._loop.call_soon_threadsafe(self.records.put_nowait, response)


class Withheld:
    """Answers that come only when the test says so."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self._may_go = asyncio.Event()

    async def wait(self) -> None:
        self.came.set()
        await self._may_go.wait()

    def release(self) -> None:
        background().loop.call_soon_threadsafe(self._may_go.set)


class FakeSidecar:
    """Serves one memory sidecar on a socket."""

    def __init__(self, memory: MemorySidecar) -> None:
        self.memory = memory
        self.wire: Wire | None = None
        self.clean: list[bool] = []
        # What applications did that no sidecar forgives.
        self.offences: list[str] = []
        # By the name of the call.
        self.withheld: dict[str, Withheld] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str) -> None:
        self._server = grpc.aio.server()
        # Poll is for applications without streams, and nobody here asks for it.
        methods = {name: self._call(name) for name in (*unary_calls.CALLS, "Poll")}
        for name, method in {**methods, "Attach": self.attach, "Deliver": self.deliver}.items():
            setattr(self, name, method)
        add_ConsumerServicer_to_server(cast("ConsumerServicer", self), self._server)
        self._server.add_insecure_port(address)
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(None)

    def _call(self, name: str) -> Any:  # noqa: ANN401  one of many calls
        async def answer(request: Any, context: Any) -> Any:  # noqa: ANN401  as above
            reply = unary_calls.answer(self.memory, name, request)
            if name in self.withheld:
                await self.withheld[name].wait()
            return reply

        return answer

    async def attach(
        self, requests: AsyncIterator[pb.AttachRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.AttachResponse]:
        first = await anext(requests)
        self._expect(first.WhichOneof("request") == "hello", "Attach begins with a hello")
        if self.wire is not None:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "there is an application already")
        wire = self.wire = Wire()
        attached = self.memory.attach(first.hello, wire)
        wire.session = attached.session
        listening = asyncio.create_task(self._serve(requests, wire))
        try:
            yield pb.AttachResponse(attached=attached)
            self.memory.begin()
            while (event := await wire.events.get()) is not None:
                yield event
        finally:
            self.wire = None
            self.clean.append(wire.said_goodbye)
            self.memory.detach(wire.session)
            listening.cancel()
            wire.records.put_nowait(None)

    async def _serve(self, requests: AsyncIterator[pb.AttachRequest], wire: Wire) -> None:
        async for request in requests:
            kind = request.WhichOneof("request")
            self._expect(kind == "goodbye", f"an application with a Deliver stream says {kind} there")
            wire.said_goodbye = True
            wire.events.put_nowait(None)

    async def deliver(
        self, requests: AsyncIterator[pb.DeliverRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.DeliverResponse]:
        first = await anext(requests)
        wire = self.wire
        assert wire is not None
        self._expect(first.hello.session == wire.session, "Deliver names its session")
        listening = asyncio.create_task(self._receive(requests, wire))
        try:
            while (response := await wire.records.get()) is not None:
                self._expect(not response.refusals, f"a verdict was refused: {response.refusals}")
                yield response
        finally:
            listening.cancel()

    async def _receive(self, requests: AsyncIterator[pb.DeliverRequest], wire: Wire) -> None:
        async for request in requests:
            self._expect(request.WhichOneof("request") != "hello", "Deliver has one hello")
            self.memory.on_request(request)
        wire.records.put_nowait(None)

    def _expect(self, holds: bool, rule: str) -> None:
        if not holds:
            self.offences.append(rule)


@contextmanager
def serving(folder: Path, memory: MemorySidecar) -> Iterator[tuple[str, FakeSidecar]]:
    """Its address, and the sidecar."""
    address = f"unix:{folder / 'app.sock'}"
    sidecar = FakeSidecar(memory)
    background().run(sidecar.start(address))
    try:
        yield address, sidecar
    finally:
        background().run(sidecar.stop())
    assert sidecar.offences == []
