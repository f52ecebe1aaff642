"""
Measure how long each part takes to make its page of metrics, and the memory of what the operator records for its web page.

The claim: with 1,000 groups of 50 partitions coordinator and operator answer a scrape within a second, a sidecar with 1,000 partitions
within 100 ms, and at the granularity `group` it has at most 30 series. The coordinator is a process whose store has the groups; the pages
of operator and sidecar are made in this process. Beside each: prometheus_client with as many gauges that are only written. What the operator
records over the whole window is bounded: it takes no more memory when partitions change hands at each look.
"""

import asyncio
import os
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import NamedTuple

import grpc
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from benchmarks.peers import page
from rota_operator.cluster.metrics import Metrics as OperatorMetrics
from rota_operator.cluster.page_groups import GROUPS_RECORDED_MAX, PageGroups
from rota_operator.cluster.queues import Key
from rota_operator.overview.samples import SAMPLE_EVERY_MS, SAMPLES_MAX, WINDOW_MS
from rota_operator.overview.view import GroupView, MemberView, PartitionView
from rota_operator.spec.model import Alerts
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2 import AlterOffsetsRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.observability.counters import Counters
from rota_sidecar.observability.metrics import GroupOfMetrics
from rota_sidecar.observability.metrics import Metrics as SidecarMetrics
from rota_sidecar.observability.partition_status import PartitionStatus
from tests.support.coordinator import Coordinator
from tests.support.processes import peak_mib
from tests.support.workdir import workdir

GROUPS, PARTITIONS, OWNED = 1_000, 50, 1_000
ROUNDS = 20
TOPIC = "orders"
CONDITIONS = ("Ready", "Rebalancing", "Lagging", "Stuck", "ScalingActive", "OffsetReset")
SECOND, TENTH = page.at_most(1), page.at_most(0.1)
SERIES, MEMORY_MIB = page.at_most(30), page.at_most(250)


class Pages(NamedTuple):
    """Times of a page and of the peer's, in seconds, and the number of its series."""

    seconds: list[float]
    theirs: list[float]
    series: int


def pages(make: Callable[[], bytes]) -> Pages:
    """Make a page and the peer's alternately; the first round only fills the caches."""
    series = sum(not line.startswith(b"#") for line in make().splitlines())
    peer = CollectorRegistry()
    gauge = Gauge("peer", "As many series.", ["number"], registry=peer)
    for number in range(series):
        gauge.labels(str(number)).set(number)
    timed = [(seconds_of(make), seconds_of(lambda: generate_latest(peer))) for _ in range(ROUNDS + 1)][1:]
    return Pages([ours for ours, _ in timed], [theirs for _, theirs in timed], series)


def seconds_of(make: Callable[[], bytes]) -> float:
    """Return how long a page takes."""
    began = time.perf_counter()
    make()
    return time.perf_counter() - began


def line(what: str, found: Pages, goal: page.Goal) -> page.Line:
    """Return the line of a page: its median and its longest time, which the goal is about."""
    longest = max(found.seconds)
    return page.Line(
        f"{what}: {found.series:,} series",
        f"{median(found.seconds) * 1000:.0f}, max {longest * 1000:.0f} ms",
        f"prometheus_client {median(found.theirs) * 1000:.1f} ms",
        page.median_ratio(zip(found.seconds, found.theirs, strict=True)),
        page.judged(goal, longest),
    )


def coordinator() -> list[page.Line]:
    """Measure a coordinator, from outside."""
    with workdir("scrapes") as folder:
        process = Coordinator(folder)
        process.start()
        try:
            process.make_topic(TOPIC, PARTITIONS)
            offsets = [pb.PartitionOffset(index=number, offset=0) for number in range(PARTITIONS)]
            with grpc.insecure_channel(process.address) as channel:
                admin = AdminStub(channel)
                for number in range(GROUPS):
                    admin.AlterOffsets(
                        AlterOffsetsRequest(
                            group_id=f"group-{number}",
                            topics=[pb.TopicOffsets(name=TOPIC, partitions=offsets)],
                        )
                    )
            address = f"http://{process.http}/metrics"
            found = pages(lambda: fetched(address))
            mebibytes = peak_mib(process.pid)
        finally:
            process.kill()
    memory = page.Line("its peak memory", f"{mebibytes:.0f} MiB", goal=page.judged(MEMORY_MIB, mebibytes))
    return [line(f"coordinator, {GROUPS:,} groups", found, SECOND), memory]


def fetched(address: str) -> bytes:
    """Return a page that a server makes."""
    with urllib.request.urlopen(address, timeout=60) as response:
        return bytes(response.read())


def operator() -> page.Line:
    """Measure the operator's page."""
    metrics = OperatorMetrics()
    conditions = [{"type": each, "status": "False"} for each in CONDITIONS]
    for number in range(GROUPS):
        metrics.update(
            Key("shop", f"group-{number}"),
            {
                "groupId": f"shop.group-{number}", "coordination": "Rota", "partitions": PARTITIONS,
                "unownedPartitions": 0, "members": 3, "lag": {"total": number, "maxSeconds": 1.5},
                "replicas": 3, "desiredReplicas": 3, "generation": 4, "conditions": conditions,
            },
            Alerts(),
        )  # fmt: skip
    return line(f"operator, {GROUPS:,} groups", pages(metrics.text), SECOND)


class Views:
    """Groups whose numbers are others at each look, and whose owners are others after `owners_change_ms`."""

    def __init__(self, owners_change_ms: int) -> None:
        self.keys = [Key("shop", f"group-{number:04}") for number in range(GROUPS_RECORDED_MAX)]
        self.now_ms = WINDOW_MS
        self._owners_change_ms = owners_change_ms

    def view(self, key: Key) -> GroupView | None:
        """Return the group now."""
        generation = self.now_ms // self._owners_change_ms
        lag, members = self.now_ms % 1_009, [f"orders-{number}" for number in range(3)]
        partitions = tuple(
            PartitionView(
                TOPIC, number, members[(number + generation) % 3], committed=self.now_ms, end=self.now_ms + lag,
                lag_records=lag, lag_seconds=lag / 10, arrival_rate=lag / 3,
            )
            for number in range(PARTITIONS)
        )  # fmt: skip
        shown = tuple(MemberView(name, f"{name}-id", "Stable", generation, ()) for name in members)
        return GroupView(
            group_id=key.name, name=key.name, state="Stable", generation=generation, strategy="range", members=shown,
            partitions=partitions, partitions_left_out=0, unowned=0, lag_records=lag, lag_seconds=lag / 10,
            arrival_rate=lag / 3, done_rate=lag / 4, rebalances=generation, history=(),
        )  # fmt: skip


def record_window(owners_change_ms: int) -> float:
    """Record all groups for the whole window; return by how many MiB the peak memory of this process has grown."""
    groups = Views(owners_change_ms)
    pages = PageGroups(groups, lambda: groups.now_ms)
    before = peak_mib(os.getpid())

    async def record() -> None:
        for _ in range(SAMPLES_MAX + 1):
            groups.now_ms += SAMPLE_EVERY_MS
            await pages.record_due()

    asyncio.run(record())
    return peak_mib(os.getpid()) - before


def recordings(what: str, owners_change_ms: int) -> page.Line:
    """Measure the memory of recordings in a process of their own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        mebibytes = process.submit(record_window, owners_change_ms).result()
    return page.Line(f"recordings of {GROUPS_RECORDED_MAX} groups, {what}", f"{mebibytes:.0f} MiB")


def sidecar(granularity: str) -> Pages:
    """Measure the page of a sidecar that owns many partitions."""
    status = PartitionStatus(
        position=9, committed=5, start=0, end=9, unresolved_ms=1_000, uncommitted_ms=1_000, is_done=False,
        rate=1.0, in_flight=2, problem="", last_progress_ms=2_000,
    )  # fmt: skip
    owned = {Partition(TOPIC, number): status for number in range(OWNED)}
    metrics = SidecarMetrics(GroupOfMetrics("orders", granularity), Counters(), owned.items, time.time)
    return pages(metrics.page)


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page("scrapes", f"pages of metrics; medians of {ROUNDS}")
    by_partition, by_group = sidecar("partition"), sidecar("group")
    result.show(
        [
            *coordinator(),
            operator(),
            recordings("owners change each minute", 60_000),
            recordings("owners change each 5 s", SAMPLE_EVERY_MS),
            line(f"sidecar, {OWNED:,} partitions", by_partition, TENTH),
            line(f"sidecar, {OWNED:,}, granularity group", by_group, TENTH),
            page.Line("series of it", str(by_group.series), goal=page.judged(SERIES, by_group.series)),
        ]
    )


if __name__ == "__main__":
    main()
