"""Each report is sent on the newest stream, and a stream that was lost is opened again soon."""

import asyncio
from contextlib import suppress

from typing_extensions import override

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.engines.port import Unreachable
from rota_sidecar.engines.rota.connection import Credentials
from rota_sidecar.fleet.client import BACKOFF_S, BACKOFF_S_MAX, FleetCallbacks, FleetClient
from tests.coordinator.virtual import play
from tests.sidecar.fleet.headquarters import Headquarters, serving

WITHIN_S = 60
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


class Streams(FleetClient):
    """A client whose streams last as long as the test says, and then fail."""

    def __init__(self, *seconds: float) -> None:
        callbacks = FleetCallbacks(pb.SidecarReport, lambda _: None, lambda: None)
        super().__init__("127.0.0.1:1", Credentials(), callbacks, lambda: 0.5, lambda _: None)
        self.pauses: list[float] = []
        self._seconds = list(seconds)
        self._ended_s: float | None = None

    @override
    async def _converse(self) -> None:
        clock = asyncio.get_running_loop().time
        if self._ended_s is not None:
            self.pauses.append(clock() - self._ended_s)
        await asyncio.sleep(self._seconds.pop(0))
        self._ended_s = clock()
        raise Unreachable("the operator is stopping")


def test_after_a_stream_that_lasted_it_reconnects_at_once_and_else_ever_later() -> None:
    async def run() -> None:
        client = Streams(0, 0, 0, 0, 0, 3600, 0, 0)
        with suppress(IndexError):
            await client.run()
        assert [round(each, 3) for each in client.pauses] == [
            2 * BACKOFF_S, 4 * BACKOFF_S, 8 * BACKOFF_S, BACKOFF_S_MAX, BACKOFF_S_MAX, BACKOFF_S, 2 * BACKOFF_S, 4 * BACKOFF_S,
        ]  # fmt: skip

    play(run)
