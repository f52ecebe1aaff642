"""The Fleet server of a laptop accepts the replicas that run here, and refuses all others."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from rota_operator.local.fleet_server import LocalFleet, serve_fleet
from rota_operator.local.replica_secrets import Replica
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub

pytestmark = pytest.mark.process

WITHIN_S = 10
SECRET = (("authorization", "Bearer secret"),)
MINE = pb.SidecarReport(sidecar="orders-0", group_id="orders")


def outcome_of(*reports: pb.SidecarReport) -> tuple[list[pb.SidecarReport], grpc.StatusCode, str]:
    """Reports that were received from a stream, and the code and message with which it ended."""

    async def run() -> tuple[list[pb.SidecarReport], grpc.StatusCode, str]:
        received: list[pb.SidecarReport] = []
        fleet = LocalFleet({"secret": Replica("orders-0", "orders")}.get, received.append)

        async def say() -> AsyncIterator[pb.SidecarReport]:
            for report in reports:
                yield report

        async with asyncio.timeout(WITHIN_S), serve_fleet(fleet) as address:
            assert address.startswith("127.0.0.1:")
            async with grpc.aio.insecure_channel(address) as channel:
                stream = FleetStub(channel).Connect(say(), metadata=SECRET)
                code = await stream.code()
                return received, code, await stream.details() or ""

    return asyncio.run(run())


def test_reports_are_received_in_order() -> None:
    second = pb.SidecarReport(sidecar="orders-0", group_id="orders", member=pb.MemberReport(records_done=3))
    received, code, _ = outcome_of(MINE, second)
    assert received == [MINE, second]
    assert code is grpc.StatusCode.OK


@pytest.mark.parametrize(
    "other",
    [
        pb.SidecarReport(sidecar="orders-7", group_id="orders"),
        pb.SidecarReport(sidecar="orders-0", group_id="others"),
        pb.SidecarReport(),
    ],
)
def test_a_report_under_another_name_is_refused_with_a_message(other: pb.SidecarReport) -> None:
    received, code, said = outcome_of(other)
    assert received == []
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert said.endswith("; check --client-id and --group-id")


class OneSidecar:
    """Speaks as orders-0, and answers each order as it is told to."""

    def __init__(self, error: str | None) -> None:
        self._error = error
        self._reports: asyncio.Queue[pb.SidecarReport] = asyncio.Queue()
        self._reports.put_nowait(MINE)
        self.ordered: list[pb.SidecarOrder] = []

    async def connect(self, address: str) -> None:
        """Until it is cancelled."""
        async with grpc.aio.insecure_channel(address) as channel:
            async for order in FleetStub(channel).Connect(self._say(), metadata=SECRET):
                self.ordered.append(order)
                if self._error is not None:
                    answer = pb.OrderAnswer(order_id=order.order_id, error=self._error)
                    self._reports.put_nowait(
                        pb.SidecarReport(sidecar="orders-0", group_id="orders", answers=[answer])
                    )

    async def _say(self) -> AsyncIterator[pb.SidecarReport]:
        while True:
            yield await self._reports.get()


def ordered(error: str | None, within_s: float) -> tuple[list[str], OneSidecar]:
    """Results of two orders to it, and of one to a replica that is not connected."""

    async def run() -> tuple[list[str], OneSidecar]:
        sidecar, received = OneSidecar(error), asyncio.Event()
        fleet = LocalFleet({"secret": Replica("orders-0", "orders")}.get, lambda _: received.set())
        async with asyncio.timeout(WITHIN_S), serve_fleet(fleet) as address:
            speaking = asyncio.create_task(sidecar.connect(address))
            await received.wait()
            said = [
                await fleet.order("orders-0", pb.SidecarOrder(suspend=pb.Suspend()), within_s),
                await fleet.order("orders-0", pb.SidecarOrder(resume=pb.Resume()), within_s),
                await fleet.order("orders-1", pb.SidecarOrder(resume=pb.Resume()), within_s),
            ]
            speaking.cancel()
            await asyncio.wait({speaking})
        return said, sidecar

    return asyncio.run(run())


NOBODY = "orders-1 is not connected, or has too many pending orders; see its log"


def test_an_order_is_done_when_it_is_answered() -> None:
    said, sidecar = ordered("", WITHIN_S)
    assert said == ["", "", NOBODY]
    assert [order.WhichOneof("order") for order in sidecar.ordered] == ["suspend", "resume"]
    assert sidecar.ordered[0].order_id != sidecar.ordered[1].order_id


def test_why_an_order_is_not_done_is_said() -> None:
    said, _ = ordered("it hurts", WITHIN_S)
    assert said == ["it hurts", "it hurts", NOBODY]


def test_an_order_without_an_answer_is_not_waited_for_for_ever() -> None:
    said, _ = ordered(None, 0.1)
    assert said[0] == "orders-0 did not answer within 0.1 s; see its log"
