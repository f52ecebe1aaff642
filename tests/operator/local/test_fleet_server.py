"""The Fleet of a laptop hears the replicas that run here, and nobody else."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from rota_operator.local.fleet_server import LocalFleet, serving_fleet
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub

pytestmark = pytest.mark.process

WITHIN_S = 10
MINE = pb.SidecarReport(sidecar="orders-0", group_id="orders")


def told(*reports: pb.SidecarReport) -> tuple[list[pb.SidecarReport], grpc.StatusCode, str]:
    """What was heard of a stream that is then ended, and how it ended."""

    async def run() -> tuple[list[pb.SidecarReport], grpc.StatusCode, str]:
        heard: list[pb.SidecarReport] = []
        fleet = LocalFleet(lambda *who: who == ("orders-0", "orders"), heard.append)

        async def say() -> AsyncIterator[pb.SidecarReport]:
            for report in reports:
                yield report

        async with asyncio.timeout(WITHIN_S), serving_fleet(fleet) as address:
            assert address.startswith("127.0.0.1:")
            async with grpc.aio.insecure_channel(address) as channel:
                stream = FleetStub(channel).Connect(say())
                code = await stream.code()
                return heard, code, await stream.details() or ""

    return asyncio.run(run())


def test_reports_are_heard_in_order() -> None:
    second = pb.SidecarReport(sidecar="orders-0", group_id="orders", member=pb.MemberReport(records_done=3))
    heard, code, _ = told(MINE, second)
    assert heard == [MINE, second]
    assert code is grpc.StatusCode.OK


@pytest.mark.parametrize(
    "stranger",
    [
        pb.SidecarReport(sidecar="orders-7", group_id="orders"),
        pb.SidecarReport(sidecar="orders-0", group_id="others"),
        pb.SidecarReport(),
    ],
)
def test_strangers_are_refused_in_a_sentence(stranger: pb.SidecarReport) -> None:
    heard, code, said = told(stranger)
    assert heard == []
    assert code is grpc.StatusCode.NOT_FOUND
    assert said.endswith(" here: give its name as --client-id")
