"""To whom the sidecars of this machine report. It listens on loopback, and hears those that the runner has started."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from typing_extensions import override

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetServicer, add_FleetServicer_to_server

STREAMS_MAX = 1_000
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
GRACE_S = 0.5

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext


class LocalFleet(FleetServicer):
    """Gives no orders yet: what its sidecars are told stands in their settings."""

    def __init__(
        self, is_running: Callable[[str, str], bool], hear: Callable[[pb.SidecarReport], None]
    ) -> None:
        self._is_running = is_running
        self._hear = hear

    @override
    async def Connect(
        self, request_iterator: AsyncIterator[pb.SidecarReport], context: Context
    ) -> AsyncIterator[pb.SidecarOrder]:
        async for report in request_iterator:
            if not self._is_running(report.sidecar, report.group_id):
                said = f"{report.sidecar!r} is no replica of group {report.group_id!r} here: give its name as --client-id"
                await context.abort(grpc.StatusCode.NOT_FOUND, said)
            self._hear(report)
        orders: tuple[pb.SidecarOrder, ...] = ()
        for order in orders:
            yield order


@asynccontextmanager
async def serving_fleet(fleet: LocalFleet) -> AsyncIterator[str]:
    """The address to dial."""
    server = grpc.aio.server(
        maximum_concurrent_rpcs=STREAMS_MAX,
        options=[("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.so_reuseport", 0)],
    )
    add_FleetServicer_to_server(fleet, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(GRACE_S)
