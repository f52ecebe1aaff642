"""
Records of the embedded log: implements `Records` with long polls.

A Fetch request is for many partitions and waits at the log until one of them has records. Fetches that come meanwhile are
sent in a further request; with more than `POLLS_FREE` in flight it is merged with the smaller ones, which are cancelled.
So the number of requests is small for any number of partitions, and most long polls are not repeated.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import grpc.aio
from typing_extensions import override

from rota_proto.log.compression import CODECS
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
from rota_sidecar.core.delivery.events import Bounds, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import FetchRequest, OffsetAndTimestamp, OnFetchResult, Records
from rota_sidecar.engines.rota import lookups
from rota_sidecar.engines.rota.connection import Credentials, RpcClient, open_channel, target_of
from rota_sidecar.engines.rota.fetched import ReadOptions, Track, result_of
from rota_sidecar.engines.rota.topics import NO_LOG

# The log waits this long for records: a wait that one record ends is long, so that it is seldom repeated.
WAIT_MS = 30_000
# After that wait, a response that takes longer than this is a timeout.
SILENT_S = 15.0
# Limits of a request: request and response stay below gRPC's message size for topic names of any length.
PARTITIONS_MAX = 2_000
BYTES_MAX = 2 << 20
# The number of requests in flight from which on they are merged.
POLLS_FREE = 3
# A request for many partitions costs the log time whenever one of them has records: a pause before it is repeated.
PAUSE_S_EACH = 20e-6
PAUSE_S_MAX = 0.2
BACKOFF_S = 0.1
BACKOFF_S_MAX = 5.0
# One failure is not reported: it may be a restart of the log.
FAILURES_REPORTED = 2

OnOutage = Callable[[str], None]
"""Callback on the event loop: the reason when an outage begins, once; an empty string when it is over."""


@dataclass(eq=False, slots=True)
class Poll:
    """A Fetch request in flight."""

    requests: dict[Partition, FetchRequest]
    task: "asyncio.Task[None] | None" = None


class RotaRecords(Records):
    """
    Must be created and used on a running loop.

    Invariant: a requested partition is in `_ready`, in a request in flight, or waits for a timer; its result is delivered
    once.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        on_result: OnFetchResult,
        on_outage: OnOutage,
        options: ReadOptions,
    ) -> None:
        self._addresses = [target_of(address) for address in addresses]
        self._credentials = credentials
        self._on_result = on_result
        self._on_outage = on_outage
        self._options = options
        limits = options.limits
        self._bytes_max = min(limits.max_bytes or BYTES_MAX, BYTES_MAX)
        # A response has no more than that: a higher minimum would never be reached.
        self._bytes_min = min(limits.min_bytes, self._bytes_max)
        self._wait_ms = limits.wait_ms(WAIT_MS)
        self._loop = asyncio.get_running_loop()
        self._channel: grpc.aio.Channel | None = None
        self._tracks: dict[Partition, Track] = {}
        self._delivery_epochs: dict[int, Partition] = {}
        self._requested: dict[Partition, FetchRequest] = {}
        # The requested partitions that wait for the next Fetch request, in order.
        self._ready: dict[Partition, None] = {}
        self._polls: set[Poll] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        # Set while a Fetch request is scheduled.
        self._sending: asyncio.Handle | None = None
        self._failures = 0
        self._is_outage_reported = False
        self._closing: set[asyncio.Task[None]] = set()

    @override
    def fetch(self, request: FetchRequest) -> None:
        track = self._tracks.get(request.partition)
        if track is None or track.delivery_epoch != request.delivery_epoch:
            if track is not None:
                del self._delivery_epochs[track.delivery_epoch]
            self._tracks[request.partition] = Track(request.delivery_epoch)
            self._delivery_epochs[request.delivery_epoch] = request.partition
        self._requested[request.partition] = request
        self._ready[request.partition] = None
        self._send_soon()

    @override
    def stop(self, delivery_epoch: int) -> None:
        partition = self._delivery_epochs.pop(delivery_epoch, None)
        if partition is None:
            return
        del self._tracks[partition]
        self._requested.pop(partition, None)
        for poll in [each for each in self._polls if partition in each.requests]:
            del poll.requests[partition]
            if not poll.requests:
                self._cancel(poll)

    @override
    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        return await self._lookup(within_s).bounds(partitions)

    @override
    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, OffsetAndTimestamp]:
        return await self._lookup(within_s).at_times(times)

    def _lookup(self, within_s: float) -> lookups.Lookup:
        return lookups.Lookup(
            tuple(self._addresses), self._credentials, within_s, read_committed=self._options.read_committed
        )

    @override
    async def close(self) -> None:
        self._requested.clear()
        self._tracks.clear()
        self._delivery_epochs.clear()
        self._ready.clear()
        self._cancel_timers()
        self._drop_connection()
        if self._closing:
            await asyncio.wait(self._closing)

    # Requests

    def _send_soon(self) -> None:
        """Schedule a Fetch request for all fetches of this turn of the loop."""
        if self._sending is None:
            self._sending = self._loop.call_soon(self._send)

    def _send(self) -> None:
        self._sending = None
        added = self._take_ready()
        if not added:
            return
        for poll in sorted(self._polls, key=lambda poll: len(poll.requests)):
            if len(self._polls) <= POLLS_FREE or len(poll.requests) > len(added):
                break
            self._cancel(poll)
            added = {**self._still_requested(poll.requests), **added}
        everything = list(added.items())
        for start in range(0, len(everything), PARTITIONS_MAX):
            self._ask(dict(everything[start : start + PARTITIONS_MAX]))

    def _take_ready(self) -> dict[Partition, FetchRequest]:
        ready, self._ready = self._ready, {}
        return {each: self._requested[each] for each in ready if each in self._requested}

    def _still_requested(self, requests: Mapping[Partition, FetchRequest]) -> dict[Partition, FetchRequest]:
        """Return the fetches without those that were cancelled or replaced meanwhile."""
        return {each: request for each, request in requests.items() if self._requested.get(each) is request}

    def _ask(self, requests: dict[Partition, FetchRequest]) -> None:
        poll = Poll(requests)
        self._polls.add(poll)
        poll.task = self._loop.create_task(self._poll(poll))
        poll.task.add_done_callback(_ended)

    async def _poll(self, poll: Poll) -> None:
        client = RpcClient(self._addresses[0], self._credentials, self._wait_ms / 1000 + SILENT_S, NO_LOG)
        try:
            if self._channel is None:
                self._channel = open_channel(client.address, client.credentials)
            response = await client.call(LogStub(self._channel).Fetch, self._request(poll.requests))
        except (Unreachable, Refused) as failure:
            if poll in self._polls:
                self._failed(str(failure))
            return
        if poll in self._polls:
            self._polls.remove(poll)
            self._answered(poll, response)

    def _request(self, requests: Mapping[Partition, FetchRequest]) -> log_pb2.FetchRequest:
        tracks = self._tracks
        urgent = self._failures > 0 or any(tracks[each].is_urgent for each in requests)
        read_committed = self._options.read_committed
        return log_pb2.FetchRequest(
            partitions=[
                log_pb2.FetchRequest.Partition(
                    topic=each.topic,
                    index=each.number,
                    topic_id=b"" if tracks[each].doubted else tracks[each].topic_id,
                    offset=request.offset,
                    max_bytes=tracks[each].stored_bytes(request.bytes_max),
                )
                for each, request in requests.items()
            ],
            min_bytes=self._bytes_min,
            max_bytes=self._bytes_max,
            max_wait_ms=0 if urgent else self._wait_ms,
            isolation_level=(
                log_pb2.ISOLATION_LEVEL_READ_COMMITTED
                if read_committed
                else log_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
            ),
            accepted_codecs=CODECS,
        )

    def _cancel(self, poll: Poll) -> None:
        self._polls.discard(poll)
        if poll.task is not None:
            poll.task.cancel()

    # Answers

    def _answered(self, poll: Poll, response: log_pb2.FetchResponse) -> None:
        results: list[Read | ReadFailed] = []
        rest: list[Partition] = []
        for part in response.partitions:
            partition = Partition(part.topic, part.index)
            request = poll.requests.get(partition)
            if request is None or self._requested.get(partition) is not request:
                continue
            found = result_of(part, request, self._tracks[partition], self._options)
            if found is None:
                rest.append(partition)
                continue
            del self._requested[partition]
            results.append(found)
        self._end_outage()
        self._ask_later(min(len(rest) * PAUSE_S_EACH, PAUSE_S_MAX), rest)
        for each in results:
            self._on_result(each)

    def _ask_later(self, delay_s: float, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions again after a delay, as far as they are still requested then."""
        requests = {each: self._requested[each] for each in partitions}
        if not requests:
            return

        def ask() -> None:
            self._timers.discard(timer)
            self._ready = {**dict.fromkeys(self._still_requested(requests)), **self._ready}
            self._send_soon()

        timer = self._loop.call_later(delay_s, ask)
        self._timers.add(timer)

    # Failures

    def _failed(self, message: str) -> None:
        """Close the connection; after a backoff fetch all requested partitions from the next address."""
        self._drop_connection()
        self._addresses.append(self._addresses.pop(0))
        self._cancel_timers()
        self._ready = dict.fromkeys(self._requested)
        self._sending = self._loop.call_later(self._backoff_s(message), self._send)

    def _backoff_s(self, message: str) -> float:
        """Count a failure, report an outage at the second one in a row, and return the backoff in seconds."""
        self._failures += 1
        if self._failures >= FAILURES_REPORTED and not self._is_outage_reported:
            self._is_outage_reported = True
            self._on_outage(message)
        return min(BACKOFF_S * (1 << min(self._failures - 1, 10)), BACKOFF_S_MAX)

    def _end_outage(self) -> None:
        self._failures = 0
        if self._is_outage_reported:
            self._is_outage_reported = False
            self._on_outage("")

    def _cancel_timers(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _drop_connection(self) -> None:
        for poll in list(self._polls):
            self._cancel(poll)
        channel, self._channel = self._channel, None
        if channel is not None:
            task = self._loop.create_task(channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _ended(task: "asyncio.Task[None]") -> None:
    """Raise an unexpected exception of the task in the loop's exception handler."""
    if not task.cancelled():
        task.result()
