"""
The stream to Fleet: reports go out every second and after changes, orders come in.

Run by `process.sidecar`. Without the stream the sidecar continues; it reconnects with backoff and sends its answers again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

import grpc
import grpc.aio

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.rota.connection import Credentials, Failure, RpcClient, metadata_of, open_channel
from rota_sidecar.membership.driver import wait_until_set

REPORT_S = 1.0
# Minimum interval between reports.
REPORT_S_MIN = 0.1
BACKOFF_S = 0.5
# An operator that starts knows nothing of a group before its sidecars have reconnected.
BACKOFF_S_MAX = 5.0
UNKNOWN_CALL = "does not serve Fleet: check --fleet and the version of the server"


@dataclass(frozen=True, slots=True)
class FleetCallbacks:
    """Callbacks of the Fleet stream, called on the event loop."""

    report: Callable[[], pb.SidecarReport]
    execute: Callable[[pb.SidecarOrder], None]
    # Called for each new stream, and at its end.
    begin: Callable[[], None]
    end: Callable[[], None] = lambda: None


class FleetClient:
    """Stream to Fleet; create and use it on a running loop."""

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        callbacks: FleetCallbacks,
        chance: Callable[[], float],
        report_problem: Callable[[str], None],
    ) -> None:
        self._client = RpcClient(address, credentials, BACKOFF_S_MAX, UNKNOWN_CALL)
        self._callbacks = callbacks
        self._chance = chance
        self._report_problem = report_problem
        self._news = asyncio.Event()
        self._said = ""
        # True once no report follows the next one.
        self._is_finishing = False
        self._finished = asyncio.Event()
        # Connection of the stream; None between two streams.
        self._channel: grpc.aio.Channel | None = None

    def trigger_now(self) -> None:
        """Send a report now, at most one per REPORT_S_MIN."""
        self._news.set()

    @property
    def is_connected(self) -> bool:
        """True while the server of Fleet is reached."""
        return self._channel is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def finish(self, within_s: float) -> None:
        """Send a last report, and wait until the server has read it, for at most so long. No-op without a connection."""
        if not self.is_connected:
            return
        self._is_finishing = True
        self.trigger_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._finished.wait()

    async def run(self) -> None:
        """Keep the stream open until `finish`."""
        backoff_s, clock = BACKOFF_S, asyncio.get_running_loop().time
        while True:
            began_s = clock()
            try:
                await self._converse()
                failure: Failure = Unreachable(
                    f"{self._client.address} closed the Fleet stream: reconnecting"
                )
            except (Unreachable, Refused) as found:
                failure = found
            if self._is_finishing:
                self._finished.set()
                return
            if str(failure) != self._said:
                self._said = str(failure)
                self._report_problem(f"Fleet is unavailable, the sidecar continues without it: {failure}")
            # An attempt that took longer than any backoff was a stream, or a silent address: no server is hurried.
            was_long = clock() - began_s > BACKOFF_S_MAX
            backoff_s = BACKOFF_S if was_long else min(backoff_s * 2, BACKOFF_S_MAX)
            await wait_until_set(asyncio.Event(), backoff_s * (0.5 + self._chance()))

    async def _converse(self) -> None:
        """Run one stream until the server closes it. Raises Unreachable, Refused."""
        asking = self._client
        metadata = metadata_of(asking.credentials)
        channel = open_channel(asking.address, asking.credentials)
        ended = asyncio.Event()
        self._channel = channel
        try:
            stream = FleetStub(channel).Connect(self._reports(ended), metadata=metadata)
            self._callbacks.begin()
            async for order in stream:
                self._said = ""
                self._callbacks.execute(order)
        except asyncio.CancelledError:
            # gRPC raises CancelledError for calls that it cancels itself; this task is not cancelled then.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unreachable(f"the stream to {asking.address} was cancelled: reconnecting") from None
        except grpc.aio.AioRpcError as error:
            raise asking.failure(error.code(), error.details() or "") from None
        finally:
            ended.set()
            self._channel = None
            self._callbacks.end()
            await channel.close()

    async def _reports(self, ended: asyncio.Event) -> AsyncIterator[pb.SidecarReport]:
        # gRPC asks for one more report after the stream has ended: it would take the answers of the next stream.
        while not ended.is_set():
            self._news.clear()
            # The server ends a stream without further reports once it has read all of them.
            is_last = self._is_finishing
            yield self._callbacks.report()
            if is_last:
                return
            await wait_until_set(asyncio.Event(), REPORT_S_MIN)
            await wait_until_set(self._news, REPORT_S - REPORT_S_MIN)
