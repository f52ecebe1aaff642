"""A Fleet for tests: it hears reports, and gives orders when the test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio
from typing_extensions import override

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1 import fleet_pb2_grpc as pb_grpc

WITHIN_S = 15
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
        self._heard = asyncio.Condition()
        self._orders: asyncio.Queue[pb.SidecarOrder | None] = asyncio.Queue()

    @override
    async def Connect(
        self, request_iterator: AsyncIterator[pb.SidecarReport], context: Context
    ) -> AsyncIterator[pb.SidecarOrder]:
        self.streams += 1
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata() or ()})
        hearing = asyncio.ensure_future(self._hear(request_iterator))
        try:
            while (order := await self._orders.get()) is not None:
                yield order
        finally:
            hearing.cancel()

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
        async with asyncio.timeout(WITHIN_S), self._heard:
            await self._heard.wait_for(holds)

    @property
    def last(self) -> pb.SidecarReport:
        """The newest report."""
        return self.reports[-1]

    async def _hear(self, reports: AsyncIterator[pb.SidecarReport]) -> None:
        async for report in reports:
            async with self._heard:
                self.reports.append(report)
                for answer in report.answers:
                    self.answers.setdefault(answer.order_id, []).append(answer)
                self._heard.notify_all()


@asynccontextmanager
async def serving(address: str = "127.0.0.1:0") -> AsyncIterator[Headquarters]:
    """One that can be dialled."""
    headquarters = Headquarters()
    server = grpc.aio.server()
    pb_grpc.add_FleetServicer_to_server(headquarters, server)
    port = server.add_insecure_port(address)
    await server.start()
    headquarters.address = f"127.0.0.1:{port}"
    try:
        yield headquarters
    finally:
        await server.stop(0)
