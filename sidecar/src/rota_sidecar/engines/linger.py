"""
Lingering: fetched records wait up to `linger_s` for records of other partitions, so that they share a message to the
application. A message costs about the same whatever its size.

`wiring.py` puts it between a backend's reader and the delivery driver if the settings ask for it. At most `ENOUGH_BYTES`
wait. A partition whose records wait is not fetched meanwhile, so a record behind them may wait for two linger times.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping

from typing_extensions import override

from rota_sidecar.core.delivery.events import Bounds, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.records import FetchRequest, OffsetAndTimestamp, OnFetchResult, Records

# A message of this size gains nothing from more records.
ENOUGH_BYTES = 64 << 10


class Lingering(Records):
    """
    Must be created and used on a running loop. `make` creates the reader with the callback that it is given.

    Invariant: the reads that wait have fewer than `ENOUGH_BYTES` bytes together, and a timer runs while there are any.
    Failures do not wait.
    """

    def __init__(
        self, make: Callable[[OnFetchResult], Records], on_result: OnFetchResult, linger_s: float
    ) -> None:
        self._on_result = on_result
        self._linger_s = linger_s
        # By delivery epoch: each has one fetch in progress.
        self._waiting: dict[int, Read] = {}
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._records = make(self._add)

    @override
    def fetch(self, request: FetchRequest) -> None:
        self._discard(request.delivery_epoch)
        self._records.fetch(request)

    @override
    def stop(self, delivery_epoch: int) -> None:
        self._discard(delivery_epoch)
        self._records.stop(delivery_epoch)

    @override
    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        return await self._records.bounds(partitions, within_s)

    @override
    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, OffsetAndTimestamp]:
        return await self._records.at_times(times, within_s)

    @override
    async def close(self) -> None:
        self._waiting.clear()
        self._stop_timer()
        await self._records.close()

    def _add(self, result: Read | ReadFailed) -> None:
        if isinstance(result, ReadFailed):
            self._on_result(result)
            return
        self._waiting[result.delivery_epoch] = result
        self._bytes += _size(result)
        if self._bytes >= ENOUGH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._flush)

    def _flush(self) -> None:
        self._stop_timer()
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for read in waiting.values():
            self._on_result(read)

    def _discard(self, delivery_epoch: int) -> None:
        read = self._waiting.pop(delivery_epoch, None)
        if read is not None:
            self._bytes -= _size(read)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _size(read: Read) -> int:
    return sum(batch.size for batch in read.batches)
