"""
Records of Kafka over the sidecar's own connections: implements `Records` with asyncio. The shell of `fetcher.py`.

Each turn, on the event loop, passes on results, looks up leaders and sends Fetch requests; it follows a call of `fetch`, an answer,
or the time of a retry. A broker has up to `FETCHES_MAX` Fetch requests in flight, for other partitions each: the first one may wait for
records. Records are decoded in a thread, so that other events need not wait for them.
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from typing_extensions import override

from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.python_client.brokers import Brokers
from rota_sidecar.engines.kafka.python_client.fetch_messages import (
    Key,
    parts_of,
    request_for,
    size_of,
)
from rota_sidecar.engines.kafka.python_client.fetcher import Fetcher, Part, Plan
from rota_sidecar.engines.kafka.python_client.lookups import Lookup
from rota_sidecar.engines.kafka.read_options import OnOutage, ReadOptions
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import FetchRequest, OffsetAndTimestamp, OnFetchResult, Records

FETCHES_MAX = 2
# Time limit of a connection and of each request, beside the time that the broker waits for records.
SILENT_S = 15.0
# Smaller responses are decoded on the loop: a thread would take longer.
DECODED_AT_ONCE_BYTES = 4 << 10
BACKOFF_MS, BACKOFF_MS_MAX = 100, 5_000
# Fewer failures in a row are not reported: a broker may have restarted, or its leadership moved.
FAILURES_REPORTED = 3


class PythonRecords(Records):
    """
    Must be created and used on a running loop.

    Invariant: `_in_flight` counts the Fetch requests in flight of each broker, at most `FETCHES_MAX`.
    """

    def __init__(
        self, settings: KafkaSettings, on_result: OnFetchResult, on_outage: OnOutage, options: ReadOptions
    ) -> None:
        self._on_result = on_result
        self._on_outage = on_outage
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._fetcher = Fetcher()
        self._brokers = Brokers(settings)
        self._decoder = ThreadPoolExecutor(1, "rota-records")
        self._in_flight: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The next turn, and the timer of a retry.
        self._turning: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._is_outage_reported = False
        self._closed = False

    @override
    def fetch(self, request: FetchRequest) -> None:
        self._fetcher.set_request(request)
        self._turn_soon()

    @override
    def stop(self, delivery_epoch: int) -> None:
        self._fetcher.stop(delivery_epoch)

    @override
    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        return await self._lookup(within_s).bounds(partitions)

    @override
    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, OffsetAndTimestamp]:
        return await self._lookup(within_s).at_times(times)

    def _lookup(self, within_s: float) -> Lookup:
        return Lookup(self._brokers, within_s, read_committed=self._options.read_committed)

    @override
    async def close(self) -> None:
        self._closed = True
        for handle in (self._turning, self._timer):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._brokers.close()
        await asyncio.to_thread(self._decoder.shutdown)

    # Turns

    def _turn_soon(self) -> None:
        if self._turning is None and not self._closed:
            self._turning = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = None
        for result in self._fetcher.results():
            self._on_result(result)
        now_ms = self._now_ms()
        names = self._fetcher.topics_to_describe(now_ms)
        if names:
            self._start(self._describe(names))
        for node, fetches in self._fetcher.ready(now_ms).items():
            if self._in_flight.get(node, 0) < FETCHES_MAX:
                self._start(self._fetch(self._fetcher.begin(node, fetches)))
                self._in_flight[node] = self._in_flight.get(node, 0) + 1
        self._wake_at(self._fetcher.wake_at_ms(now_ms))

    def _wake_at(self, wake_at_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at_ms is not None:
            self._timer = self._loop.call_at(wake_at_ms / 1000, self._turn_soon)

    def _now_ms(self) -> int:
        # Rounded up: a timer never comes before its time.
        return int(self._loop.time() * 1000) + 1

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Raise an unexpected exception of the task in the loop's exception handler."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    # Requests to brokers

    async def _describe(self, names: Sequence[str]) -> None:
        known = list(self._fetcher.addresses.values())
        try:
            metadata = await self._brokers.describe(names, SILENT_S, known)
        except (Unreachable, Refused) as failure:
            self._fetcher.describe_failed(names, self._failed(failure))
        else:
            self._fetcher.described(names, metadata, self._now_ms())
        self._turn_soon()

    async def _fetch(self, plan: Plan) -> None:
        try:
            parts = await self._fetched(plan)
        except (Unreachable, Refused) as failure:
            self._fetcher.fetch_failed(plan, self._failed(failure))
        else:
            self._fetcher.fetched(plan, parts, self._now_ms())
            self._end_outage()
        self._in_flight[plan.node] -= 1
        self._turn_soon()

    async def _fetched(self, plan: Plan) -> Mapping[Key, Part]:
        address = self._fetcher.addresses.get(plan.node)
        if address is None:
            raise Unreachable(f"Kafka has no broker {plan.node} any more; see the brokers' logs")
        request = request_for(plan, self._options)
        response = await self._brokers.ask(address, request, SILENT_S + request.max_wait_ms / 1000)
        if response.error_code:
            raise Unreachable(
                f"Kafka at {address} answers a fetch with error {response.error_code}; see the broker's log"
            )
        if size_of(response) <= DECODED_AT_ONCE_BYTES:
            return parts_of(response, plan, self._options)
        return await self._loop.run_in_executor(self._decoder, parts_of, response, plan, self._options)

    # Outages

    def _failed(self, failure: Unreachable | Refused) -> int:
        """Count a failure, report an outage unless it may pass at once, and return the time of the next attempt."""
        self._failures += 1
        is_certain = isinstance(failure, Refused) or self._failures >= FAILURES_REPORTED
        if is_certain and not self._is_outage_reported:
            self._is_outage_reported = True
            self._on_outage(f"no records can be read from Kafka ({failure})")
        backoff_ms = BACKOFF_MS << min(self._failures - 1, 10)
        return self._now_ms() + min(backoff_ms, BACKOFF_MS_MAX)

    def _end_outage(self) -> None:
        self._failures = 0
        if self._is_outage_reported:
            self._is_outage_reported = False
            self._on_outage("")
