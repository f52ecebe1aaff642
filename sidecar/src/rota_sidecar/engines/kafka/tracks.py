"""
Prefetched batches of one Kafka partition, between the consumer and the fetches; pure. Used by `consumption.py` and by
`python_client/fetcher.py`.
"""

from collections import deque
from collections.abc import Sequence

from rota_sidecar.core.delivery.events import Bounds, Read
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.engines.records import FetchRequest

# Prefetch limit of a partition: enough to answer the next fetch at once.
AHEAD_BYTES_MAX = 256 << 10
# Prefetch limit of all partitions together.
AHEAD_BYTES_TOTAL_MAX = 8 << 20


def limit_of(holding: int) -> int:
    """Return the prefetch limit of a partition while so many have prefetched records: few of them may have more."""
    return max(AHEAD_BYTES_MAX, AHEAD_BYTES_TOTAL_MAX // (2 * max(holding, 1)))


class Track:
    """
    A partition that is consumed from one offset on.

    Invariant: front <= position, and the prefetched batches are those between them.
    """

    def __init__(self, request: FetchRequest) -> None:
        # The delivery epoch of the last request.
        self.delivery_epoch = request.delivery_epoch
        # The offset at which the next Read begins, and the next offset of the consumer.
        self.front = self.position = request.offset
        self.request: FetchRequest | None = request
        # True while the consumer does not fetch it, because it was full.
        self.is_aside = False
        # True after the first batch or the first end of partition.
        self.is_known = False
        self.ahead_bytes = 0
        self._ahead: deque[Batch] = deque()
        self._ends_at = -1
        self._last_bounds: tuple[int, Bounds] | None = None

    def is_full(self, total_bytes: int, limit: int = AHEAD_BYTES_MAX) -> bool:
        """Return true if the partition has no request and has reached a prefetch limit; `total_bytes` are of all partitions."""
        if self.request is not None or not self._ahead:
            return False
        return self.ahead_bytes >= limit or total_bytes >= AHEAD_BYTES_TOTAL_MAX

    def set_request(self, request: FetchRequest) -> None:
        """Continue at the front with a new request, of the same delivery epoch or another one."""
        self.delivery_epoch = request.delivery_epoch
        self.request = request

    def append(self, batches: Sequence[Batch]) -> None:
        """Append batches that the consumer has read."""
        self._ahead += batches
        self.ahead_bytes += sum(batch.size for batch in batches)
        self.position = batches[-1].end
        self.is_known = True

    def advance(self, offset: int) -> None:
        """Continue at this offset: what is before it was read, or is nothing for readers, such as control batches."""
        self.position = max(self.position, offset)
        self.is_known = True

    def reach_end(self, offset: int) -> None:
        """Record that the log ends at this offset for readers; ignored if batches behind it were read."""
        if offset >= self.position:
            self.position = self._ends_at = offset
            self.is_known = True

    def take_read(self, low: int, high: int) -> Read | None:
        """
        Return the result of the request, and clear it; None: there is no request, or nothing new for it.

        `low` and `high` are the watermarks that the broker reported last; negative: none.
        """
        request = self.request
        if request is None:
            return None
        if high < 0 and self._last_bounds is not None:
            # Not reported since the partition was set aside.
            low, high = self._last_bounds[1]
        batches = self._take(request.bytes_max)
        self.front = batches[-1].end if self._ahead else self.position
        # With an open transaction the log continues behind the last stable offset, where readers stop.
        end = self.position if self._ends_at == self.position else max(high, self.position)
        bounds = Bounds(max(low, 0), end)
        current = (request.delivery_epoch, bounds)
        if not batches and self.front == request.offset and current == self._last_bounds:
            return None
        self._last_bounds = current
        self.request = None
        return Read(request.delivery_epoch, batches, self.front, bounds)

    def _take(self, bytes_max: int) -> list[Batch]:
        taken: list[Batch] = []
        room = bytes_max
        while self._ahead and (not taken or self._ahead[0].size <= room):
            batch = self._ahead.popleft()
            room -= batch.size
            self.ahead_bytes -= batch.size
            taken.append(batch)
        return taken
