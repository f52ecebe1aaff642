"""Each report is sent on the newest stream: none is made for a stream that has ended."""

import asyncio

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.engines.rota.connection import Credentials
from rota_sidecar.fleet.client import FleetCallbacks, FleetClient
from tests.sidecar.fleet.headquarters import Headquarters, serving

WITHIN_S = 15
REPORTS = 5


async def next_report(fleet: Headquarters) -> None:
    received = len(fleet.reports)
    await fleet.wait_until(lambda: len(fleet.reports) > received)


def test_a_stream_that_has_ended_takes_no_report_from_the_next_one() -> None:
    async def run() -> None:
        made = 0

        def report() -> pb.SidecarReport:
            nonlocal made
            made += 1
            return pb.SidecarReport(member=pb.MemberReport(records_done=made))

        async with asyncio.timeout(WITHIN_S), serving() as fleet:
            callbacks = FleetCallbacks(report, lambda _: None, lambda: None)
            client = FleetClient(fleet.address, Credentials(), callbacks, lambda: 0.0, lambda _: None)
            running = asyncio.ensure_future(client.run())
            await fleet.wait_until(lambda: len(fleet.reports) == 1)
            fleet.hang_up()
            await fleet.wait_until(lambda: fleet.streams == 2 and len(fleet.reports) >= 2)
            for _ in range(REPORTS):
                client.trigger_now()
                await next_report(fleet)
            assert [each.member.records_done for each in fleet.reports] == [*range(1, len(fleet.reports) + 1)]
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(run())
