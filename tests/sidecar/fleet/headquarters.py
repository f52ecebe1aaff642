"""A Fleet server for tests: it receives reports, and sends orders when the test asks for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio
from typing_extensions import override

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1 import fleet_pb2_grpc as pb_grpc

WITHIN_S = 60
if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext


class Headquarters(pb_grpc.FleetServicer):
    """One sidecar at a time."""

    def __init__(self) -> None:
        self.address = ""
        self.reports: list[pb.SidecarReport] = []
        self.answers: dict[int, list[pb.OrderAnswer]] = {}
        self.streams = 0
        self.metadata: list[dict[str, str]] = []
        self._received = asyncio.Condition()
        self._orders: asyncio.Queue[pb.SidecarOrder | None] = asyncio.Queue()

    @override
    async def Connect(
        self, request_iterator: AsyncIterator[pb.SidecarReport], context: Context
    ) -> AsyncIterator[pb.SidecarOrder]:
        self.streams += 1
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata() or ()})
        reading = asyncio.ensure_future(self._read(request_iterator))
        try:
            while (order := await self._orders.get()) is not None:
                yield order
        finally:
            reading.cancel()

    def hang_up(self) -> None:
        """End the stream."""
        self._orders.put_nowait(None)

    async def order(self, number: int, **order: object) -> pb.OrderAnswer:
        """Give it; the answer."""
        before = len(self.answers.get(number, ()))
        self._orders.put_nowait(pb.SidecarOrder(order_id=number, **order))  # type: ignore[arg-type]
        await self.wait_until(lambda: len(self.answers.get(number, ())) > before)
        return self.answers[number][-1]

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return as soon as that holds; it is looked at after each report."""
        async with asyncio.timeout(WITHIN_S), self._received:
            await self._received.wait_for(holds)

    @property
    def last(self) -> pb.SidecarReport:
        """The newest report."""
        return self.reports[-1]

    async def _read(self, reports: AsyncIterator[pb.SidecarReport]) -> None:
        async for report in reports:
            async with self._received:
                self.reports.append(report)
                for answer in report.answers:
                    self.answers.setdefault(answer.order_id, []).append(answer)
                self._received.notify_all()


@asynccontextmanager
async def serving(
    address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[Headquarters]:
    """Serve, with TLS if there are credentials."""
    headquarters = Headquarters()
    server = grpc.aio.server()
    pb_grpc.add_FleetServicer_to_server(headquarters, server)
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    await server.start()
    headquarters.address = f"127.0.0.1:{port}"
    try:
        yield headquarters
    finally:
        await server.stop(0)
