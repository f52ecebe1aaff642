"""
The stream to Fleet: reports out, each second and whenever something changes; orders in.

Run by `serving`. Losing it stops nothing: it is dialled again, and what was answered is answered once more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import grpc
import grpc.aio

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.rota.connection import Asking, Credentials, Failure, metadata_of, open_channel
from rota_sidecar.membership.driver import wait_until_set

REPORT_S = 1.0
# However much changes, not more often than this.
REPORT_S_MIN = 0.1
BACKOFF_S = 0.5
BACKOFF_S_MAX = 30.0
UNKNOWN_CALL = "is no Fleet: check --fleet, and the version there"


@dataclass(frozen=True, slots=True)
class FleetCallbacks:
    """What is said, and who does what is ordered."""

    report: Callable[[], pb.SidecarReport]
    execute: Callable[[pb.SidecarOrder], None]
    # A new stream: all answers that are remembered go out once more.
    begin: Callable[[], None]


class FleetClient:
    """To be made and used on a running loop."""

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        callbacks: FleetCallbacks,
        chance: Callable[[], float],
        report_problem: Callable[[str], None],
    ) -> None:
        self._asking = Asking(address, credentials, BACKOFF_S_MAX, UNKNOWN_CALL)
        self._callbacks = callbacks
        self._chance = chance
        self._report_problem = report_problem
        self._news = asyncio.Event()
        self._said = ""

    def trigger_now(self) -> None:
        """Something is worth a report now."""
        self._news.set()

    async def run(self) -> None:
        """For ever."""
        backoff_s = BACKOFF_S
        while True:
            try:
                heard = await self._converse()
                failure: Failure = Unreachable(
                    f"{self._asking.address} ended the stream of Fleet: it is dialled again"
                )
            except (Unreachable, Refused) as found:
                heard, failure = False, found
            if str(failure) != self._said:
                self._said = str(failure)
                self._report_problem(f"Fleet is not there, and nothing waits for it: {failure}")
            backoff_s = BACKOFF_S if heard else min(backoff_s * 2, BACKOFF_S_MAX)
            await wait_until_set(asyncio.Event(), backoff_s * (0.5 + self._chance()))

    async def _converse(self) -> bool:
        """Whether it was there, and ended well. Raises Unreachable, Refused."""
        asking = self._asking
        metadata = metadata_of(asking.credentials)
        channel = open_channel(asking.address, asking.credentials)
        try:
            stream = FleetStub(channel).Connect(self._reports(), metadata=metadata)
            self._callbacks.begin()
            async for order in stream:
                self._said = ""
                self._callbacks.execute(order)
            return True
        except asyncio.CancelledError:
            # gRPC cancels calls by itself, too; who converses is not cancelled by that.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unreachable(f"the stream to {asking.address} was given up: it is dialled again") from None
        except grpc.aio.AioRpcError as error:
            raise asking.failure(error.code(), error.details() or "") from None
        finally:
            await channel.close()

    async def _reports(self) -> AsyncIterator[pb.SidecarReport]:
        while True:
            self._news.clear()
            yield self._callbacks.report()
            await wait_until_set(asyncio.Event(), REPORT_S_MIN)
            await wait_until_set(self._news, REPORT_S - REPORT_S_MIN)
