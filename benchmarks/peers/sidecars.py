"""Sidecars of a benchmark: streams to a Fleet server, each with a connection of its own, that send a report every second."""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc.aio

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub

REPORT_S = 1.0
CONNECTED_S = 60
# A second of records in each partition.
RATE = 100
NO_QUERIES = "this sidecar answers no queries"


class Sidecar(NamedTuple):
    """A sidecar, by its pod; `token` is empty where the server asks for none."""

    pod: str
    group_id: str
    number: int
    partitions: int
    token: str = ""


class Fleet:
    """Running sidecars; `reports` counts what all have sent."""

    def __init__(self) -> None:
        self.reports = 0
        self._connected = 0
        self._all_connected = asyncio.Event()

    async def wait_connected(self) -> None:
        """Wait until every sidecar has sent its first report. Raises TimeoutError."""
        async with asyncio.timeout(CONNECTED_S):
            await self._all_connected.wait()

    async def run(self, address: str, sidecar: Sidecar, delay_s: float, all_of_them: int) -> None:
        """Report until cancelled; the first report after `delay_s`, so that the reports of all are spread over the second."""
        await asyncio.sleep(delay_s)
        options = [("grpc.use_local_subchannel_pool", 1)]
        metadata = (("authorization", f"Bearer {sidecar.token}"),) if sidecar.token else ()
        answers: list[pb.OrderAnswer] = []
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            stream = FleetStub(channel).Connect(metadata=metadata)
            reading = asyncio.create_task(read_orders(stream, answers))
            try:
                for second in seconds():
                    report = report_of(sidecar, second)
                    report.answers.extend(answers)
                    answers.clear()
                    await stream.write(report)
                    self.reports += 1
                    if second == 0:
                        self._connected += 1
                        if self._connected == all_of_them:
                            self._all_connected.set()
                    await asyncio.sleep(REPORT_S)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


def seconds() -> Iterator[int]:
    """Count from 0."""
    second = 0
    while True:
        yield second
        second += 1


async def read_orders(stream: AsyncIterable[pb.SidecarOrder], answers: list[pb.OrderAnswer]) -> None:
    """Refuse every order, as a sidecar that does not know it does."""
    async for order in stream:
        answers.append(pb.OrderAnswer(order_id=order.order_id, error=NO_QUERIES))


def report_of(sidecar: Sidecar, second: int) -> pb.SidecarReport:
    """Return the report of a member that owns `partitions` partitions and processes records."""
    offset, now_ms = second * RATE, int(time.time() * 1000)
    first = sidecar.number * sidecar.partitions
    return pb.SidecarReport(
        group_id=sidecar.group_id,
        sidecar=sidecar.pod,
        version="0.1.0",
        member=pb.MemberReport(
            member_id=f"{sidecar.pod}-1",
            state=pb.MEMBER_STATE_STABLE,
            generation_id=7,
            busy_seconds=second / 2,
            records_done=offset * sidecar.partitions,
            ready=True,
        ),
        partitions=[
            pb.PartitionReport(
                topic="orders",
                partition=number,
                position=offset + 10,
                committed=offset,
                start=0,
                end=offset + 20,
                first_unresolved_timestamp_ms=now_ms - 200,
                arrival_rate=RATE,
                in_flight=10,
                last_progress_ms=now_ms,
            )
            for number in range(first, first + sidecar.partitions)
        ],
    )


@asynccontextmanager
async def reporting(address: str, sidecars: Sequence[Sidecar]) -> AsyncIterator[Fleet]:
    """Run sidecars, all of which have sent a report. Raises what one of them has failed with."""
    fleet = Fleet()
    spread_s = max(REPORT_S, len(sidecars) / 200)
    tasks = [
        asyncio.create_task(fleet.run(address, each, index * spread_s / len(sidecars), len(sidecars)))
        for index, each in enumerate(sidecars)
    ]
    try:
        await fleet.wait_connected()
        yield fleet
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
