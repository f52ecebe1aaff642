"""A sidecar outlives the operator: an order of the operator's next life is never taken for one of its last life."""

import asyncio
import secrets
from pathlib import Path

import pytest

from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.support.coordinator import serving as coordinating
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.process
WITHIN_S = 60
GROUP = "orders"
POD = SidecarRef("shop", "orders-0")


class Life:
    """One life of the operator: a Fleet server that one sidecar reports to."""

    def __init__(self) -> None:
        self._reported = asyncio.Condition()
        self._suspended: bool | None = None
        self.fleet = FleetServer(
            FleetCallbacks(self._authenticate, self._on_report), order_ids(secrets.randbits(64))
        )

    async def _authenticate(self, token: str) -> Principal:
        return Principal(POD, GROUP)

    def _on_report(self, principal: Principal, report: pb.SidecarReport) -> None:
        self._suspended = report.member.suspended
        self._notified = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self._reported:
            self._reported.notify_all()

    async def wait_until(self, suspended: tuple[bool, ...]) -> None:
        """Wait for a report that has one of these values."""
        async with asyncio.timeout(WITHIN_S), self._reported:
            await self._reported.wait_for(lambda: self._suspended in suspended)

    async def order(self, order: pb.SidecarOrder) -> str:
        """Send an order once the sidecar is connected; return the error."""
        await self.wait_until((True, False))
        return str((await self.fleet.order(POD, order, WITHIN_S)).error)


def test_the_first_order_of_the_next_life_is_executed(tmp_path: Path) -> None:
    async def run(coordinator: str) -> None:
        first, second = Life(), Life()
        async with serve_fleet(first.fleet, "127.0.0.1:0") as address:
            flags = (
                "--topics=orders",
                f"--fleet={address}",
                f"--fleet-token-file={token}",
                f"--client-id={POD.pod}",
            )
            sidecar = Deliverer(tmp_path, f"rota://{coordinator}", GROUP, flags)
            await asyncio.to_thread(sidecar.start)
            assert await first.order(pb.SidecarOrder(suspend=pb.Suspend())) == ""
            await first.wait_until((True,))
        try:
            async with serve_fleet(second.fleet, address):
                assert await second.order(pb.SidecarOrder(resume=pb.Resume())) == ""
                await second.wait_until((False,))
        finally:
            await asyncio.to_thread(sidecar.close)

    token = tmp_path / "token"
    token.write_text("anything")
    with coordinating(tmp_path / "coordinator") as coordinator:
        asyncio.run(run(coordinator.address))
