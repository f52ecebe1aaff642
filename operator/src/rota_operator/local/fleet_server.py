"""
Fleet server on loopback: receives the reports of this runner's sidecars and sends them orders.

Each sidecar authenticates with the token of its replica before anything is read or sent.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from typing_extensions import override

from rota_operator.local.replica_secrets import Replica
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetServicer, add_FleetServicer_to_server

STREAMS_MAX = 1_000
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
GRACE_S = 0.5
# Orders queued for one sidecar. One further entry is for the end of its stream.
ORDERS_MAX = 100

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext


UNAUTHENTICATED = "unknown token; this Fleet accepts sidecars started by its runner (see --fleet-token-file)"
BEARER = "Bearer "


class LocalFleet(FleetServicer):
    """
    The Fleet service; thread-confined to one event loop.

    Invariant: a sidecar has at most one order queue, that of its newest stream, and only it can answer its orders.
    """

    def __init__(
        self, replica_of: Callable[[str], Replica | None], on_report: Callable[[pb.SidecarReport], None]
    ) -> None:
        """`replica_of` returns the replica that a secret was issued for."""
        self._replica_of = replica_of
        self._on_report = on_report
        # By sidecar name: the orders that its newest stream sends; None ends the stream.
        self._orders: dict[str, asyncio.Queue[pb.SidecarOrder | None]] = {}
        # By sidecar name and order id, so that one sidecar cannot answer for another.
        self._pending: dict[tuple[str, int], asyncio.Future[pb.OrderAnswer]] = {}
        # Ids are not reused: a sidecar takes a repeated id for the same order.
        self._ids = itertools.count(1)

    async def order(self, sidecar: str, order: pb.SidecarOrder, within_s: float) -> str:
        """Send an order and wait for its answer; return the error, or an empty string once it is executed."""
        stream = self._orders.get(sidecar)
        if stream is None or stream.qsize() >= ORDERS_MAX:
            return f"{sidecar} is not connected, or has too many pending orders; see its log"
        # The same order may go to several sidecars: each gets a copy with its own id.
        own = pb.SidecarOrder(order_id=next(self._ids))
        own.MergeFrom(order)
        answer = self._pending[sidecar, own.order_id] = asyncio.get_running_loop().create_future()
        stream.put_nowait(own)
        try:
            async with asyncio.timeout(within_s):
                return str((await answer).error)
        except TimeoutError:
            return f"{sidecar} did not answer within {within_s:g} s; see its log"
        finally:
            del self._pending[sidecar, own.order_id]

    @override
    async def Connect(
        self, request_iterator: AsyncIterator[pb.SidecarReport], context: Context
    ) -> AsyncIterator[pb.SidecarOrder]:
        replica = self._replica_of(bearer_token(context.invocation_metadata() or ()))
        if replica is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHENTICATED)
        orders: asyncio.Queue[pb.SidecarOrder | None] = asyncio.Queue(ORDERS_MAX + 1)
        self._orders[replica.name] = orders
        reading = asyncio.ensure_future(self._read_reports(request_iterator, replica))
        reading.add_done_callback(lambda _: orders.put_nowait(None))
        try:
            while (order := await orders.get()) is not None:
                yield order
            error = await reading
        finally:
            reading.cancel()
            if self._orders.get(replica.name) is orders:
                del self._orders[replica.name]
        if error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, error)

    async def _read_reports(self, reports: AsyncIterator[pb.SidecarReport], replica: Replica) -> str:
        """Receive reports until the stream ends; return the error that ends it here, or an empty string."""
        async for report in reports:
            if (report.sidecar, report.group_id) != replica:
                return (
                    f"report of sidecar {report.sidecar!r} in group {report.group_id!r} with the token of {replica.name!r} "
                    f"in group {replica.group_id!r}; check --client-id and --group-id"
                )
            for answer in report.answers:
                pending = self._pending.get((replica.name, answer.order_id))
                if pending is not None and not pending.done():
                    pending.set_result(answer)
            self._on_report(report)
        return ""


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the bearer token of a call; empty if there is none, or more than one."""
    found = [value for name, value in metadata if name == "authorization"]
    if len(found) != 1 or not isinstance(found[0], str):
        return ""
    return found[0].removeprefix(BEARER) if found[0].startswith(BEARER) else ""


@asynccontextmanager
async def serve_fleet(fleet: LocalFleet) -> AsyncIterator[str]:
    """Serve on a free loopback port; yields the address."""
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
