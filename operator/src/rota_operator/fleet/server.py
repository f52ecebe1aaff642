"""
The Fleet service: one stream for each sidecar, reports in, orders out.

A stream is authenticated before anything of it is read, and again whenever the authentication expires. Its reports go to the
owner of the server together with the identity that the token proved. Orders wait in the queue of the sidecar's newest stream,
and are done when a later report carries the answer to their id.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from typing_extensions import override

from rota_operator.fleet.authentication import Authenticate, bearer_token
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.stream import Stream, Streams
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetServicer, add_FleetServicer_to_server
from rota_service.token_review import AuthenticationUnavailable, Unauthenticated

# One for each sidecar, and some that are being replaced.
STREAMS_MAX = 20_000
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
GRACE_S = 0.5
# Sidecars wait 0.1 s between reports.
REPORT_INTERVAL_S_MIN = 0.05
KEEPALIVE_MS = 10_000
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    # Without the second one a silent peer is noticed after a minute, whatever the first one says.
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
)

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext

Code = grpc.StatusCode
NO_TOKEN = "the call has no token; send the metadata 'authorization: Bearer TOKEN' (see --fleet-token-file)"
NOT_LEADER = "this operator is not the leader; retry, another replica serves Fleet"
MOVED = "the pod belongs to another group now; reconnect"


@dataclass(frozen=True, slots=True)
class FleetCallbacks:
    """Callbacks of the server, called on its event loop."""

    authenticate: Authenticate
    on_report: Callable[[Principal, pb.SidecarReport], None]
    # Called with the peer's address and the reason for each stream that is rejected; neither contains a token.
    on_rejected: Callable[[str, str], None] = lambda _peer, _reason: None
    # Streams are refused with UNAVAILABLE while this is False.
    is_leader: Callable[[], bool] = lambda: True
    # Called for each stream that is opened: the sidecar may be another process than before, which remembers no order.
    on_opened: Callable[[Principal], None] = lambda _principal: None


class FleetServer(FleetServicer):
    """
    The Fleet service; thread-confined to one event loop.

    Invariant: a sidecar has at most one stream, the newest, and only that sidecar can answer its orders.
    """

    def __init__(self, callbacks: FleetCallbacks, order_ids: Iterator[int]) -> None:
        """`order_ids` yields ids that are unique over all lives of the operator."""
        self._callbacks = callbacks
        self._order_ids = order_ids
        self._streams = Streams(self._not_sent)
        # By sidecar and order id: one sidecar cannot answer for another.
        self._pending: dict[tuple[SidecarRef, int], asyncio.Future[pb.OrderAnswer]] = {}

    @property
    def connected(self) -> Sequence[Principal]:
        """The sidecars that have a stream now."""
        return self._streams.principals

    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        """
        Send an order and wait for its answer; `error` is empty once it is executed.

        Without an answer of the sidecar, the result has no order id, and `error` says why; the order may have been executed
        all the same if it had been sent.
        """
        # Callers may send one order to several sidecars: each gets an id of its own.
        own = pb.SidecarOrder(order_id=next(self._order_ids))
        own.MergeFrom(order)
        if not self._streams.add_order(sidecar, own):
            return pb.OrderAnswer(
                error=f"{sidecar.pod} is not connected, or has too many pending orders; see its log"
            )
        answer: asyncio.Future[pb.OrderAnswer] = asyncio.get_running_loop().create_future()
        self._pending[sidecar, own.order_id] = answer
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            return pb.OrderAnswer(error=f"{sidecar.pod} did not answer within {within_s:g} s; see its log")
        finally:
            del self._pending[sidecar, own.order_id]
            self._streams.remove_order(sidecar, own.order_id)

    def close(self) -> None:
        """End all streams and refuse new ones, so that sidecars go on to the next leader."""
        self._streams.close_all()

    @override
    async def Connect(
        self, request_iterator: AsyncIterator[pb.SidecarReport], context: Context
    ) -> AsyncIterator[pb.SidecarOrder]:
        if not self._callbacks.is_leader():
            await context.abort(Code.UNAVAILABLE, NOT_LEADER)
        token = bearer_token(context.invocation_metadata() or ())
        try:
            principal = await self._authenticate(token)
        except AuthenticationUnavailable as error:
            await context.abort(Code.UNAVAILABLE, str(error))
        except Unauthenticated as error:
            self._callbacks.on_rejected(context.peer(), str(error))
            await context.abort(Code.UNAUTHENTICATED, str(error))
        stream = self._streams.open(principal)
        self._callbacks.on_opened(principal)
        tasks = [
            asyncio.ensure_future(self._read_reports(request_iterator, stream, context.peer())),
            asyncio.ensure_future(self._repeat_authentication(token, stream, context.peer())),
        ]
        try:
            while (order := await stream.next()) is not None:
                yield order
        finally:
            self._streams.close(stream)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if stream.ended is not None and stream.ended.code is not Code.OK:
            await context.abort(*stream.ended)

    async def _authenticate(self, token: str) -> Principal:
        if not token:
            raise Unauthenticated(NO_TOKEN)
        return await self._callbacks.authenticate(token)

    def _not_sent(self, sidecar: SidecarRef, order_id: int) -> None:
        """Fail an order that is certain not to be executed."""
        not_sent = pb.OrderAnswer(error=f"{sidecar.pod} has disconnected; see its log")
        self._complete(sidecar, order_id, not_sent)

    def _complete(self, sidecar: SidecarRef, order_id: int, answer: pb.OrderAnswer) -> None:
        """Complete an order; no-op if it is not pending, for instance one of an earlier life."""
        pending = self._pending.get((sidecar, order_id))
        if pending is not None and not pending.done():
            pending.set_result(answer)

    async def _read_reports(
        self, reports: AsyncIterator[pb.SidecarReport], stream: Stream, peer: str
    ) -> None:
        """Receive reports until the stream ends, at most one per REPORT_INTERVAL_S_MIN; more wait in the network."""
        principal, clock = stream.principal, asyncio.get_running_loop().time
        next_s = clock()
        try:
            async for report in reports:
                # A timer for each report costs more than reading the clock: sidecars rarely have to wait.
                if (early_s := next_s - clock()) > 0:
                    await asyncio.sleep(early_s)
                next_s = clock() + REPORT_INTERVAL_S_MIN
                error = _identity_error(report, principal)
                if error:
                    self._callbacks.on_rejected(peer, error)
                    stream.end(Code.PERMISSION_DENIED, error)
                    return
                for answer in report.answers:
                    self._complete(principal.sidecar, answer.order_id, answer)
                self._callbacks.on_report(principal, report)
        finally:
            stream.end(Code.OK)

    async def _repeat_authentication(self, token: str, stream: Stream, peer: str) -> None:
        """Authenticate the stream's token again whenever the authentication expires; end the stream once that fails."""
        while (valid_for_s := stream.principal.valid_for_s) is not None:
            await asyncio.sleep(valid_for_s)
            try:
                principal = await self._callbacks.authenticate(token)
            except Unauthenticated as error:
                self._callbacks.on_rejected(peer, str(error))
                stream.end(Code.UNAUTHENTICATED, str(error))
                return
            except AuthenticationUnavailable as error:
                stream.end(Code.UNAVAILABLE, str(error))
                return
            if not stream.principal.is_same(principal):
                stream.end(Code.ABORTED, MOVED)
                return
            stream.principal = principal


def _identity_error(report: pb.SidecarReport, principal: Principal) -> str:
    """Return why the report does not belong to the principal; empty if it does."""
    pod, group_id = principal.sidecar.pod, principal.group_id
    if (report.sidecar, report.group_id) == (pod, group_id):
        return ""
    return (
        f"report of sidecar {report.sidecar!r} in group {report.group_id!r} with the token of {pod!r} "
        f"in group {group_id!r}; check --client-id and --group-id"
    )


@asynccontextmanager
async def serve_fleet(
    fleet: FleetServer,
    listen: str,
    credentials: grpc.ServerCredentials | None = None,
    streams_max: int = STREAMS_MAX,
) -> AsyncIterator[str]:
    """
    Serve at `listen` (HOST:PORT; port 0: any free one), in plain text without credentials; yields the address.

    Raises RuntimeError if the address is in use.
    """
    server = grpc.aio.server(maximum_concurrent_rpcs=streams_max, options=OPTIONS)
    add_FleetServicer_to_server(fleet, server)
    if credentials is None:
        port = server.add_insecure_port(listen)
    else:
        port = server.add_secure_port(listen, credentials)
    await server.start()
    try:
        yield f"{listen.rpartition(':')[0]}:{port}"
    finally:
        fleet.close()
        await server.stop(GRACE_S)
