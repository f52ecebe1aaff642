"""What was read of a Kafka partition and nobody has taken yet. For `consumption.py`; pure."""

from collections import deque
from collections.abc import Sequence

from rota_sidecar.core.delivery.events import Bounds, Read
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.engines.records import FetchRequest

# Read ahead of those who want it: enough to answer the next fetch at once.
AHEAD_BYTES_MAX = 256 << 10
# Of all partitions together.
AHEAD_BYTES_TOTAL_MAX = 8 << 20


class Track:
    """A partition that is read, from one offset on."""

    def __init__(self, request: FetchRequest) -> None:
        # Who reads it.
        self.delivery_epoch = request.delivery_epoch
        # Where the next Read begins, and where the consumer goes on.
        self.front = self.position = request.offset
        self.request: FetchRequest | None = request
        self.is_paused = False
        # Whether anything is known of the partition.
        self.is_known = False
        self.ahead_bytes = 0
        self._ahead: deque[Batch] = deque()
        self._ends_at = -1
        self._last_bounds: tuple[int, Bounds] | None = None

    def is_full(self, total_bytes: int) -> bool:
        """Whether nothing more is to be read before somebody takes what there is."""
        if self.request is not None or not self._ahead:
            return False
        return self.ahead_bytes >= AHEAD_BYTES_MAX or total_bytes >= AHEAD_BYTES_TOTAL_MAX

    def set_request(self, request: FetchRequest) -> None:
        """The same, or somebody else, goes on at the front."""
        self.delivery_epoch = request.delivery_epoch
        self.request = request

    def append(self, batches: Sequence[Batch]) -> None:
        """The consumer has read these."""
        self._ahead += batches
        self.ahead_bytes += sum(batch.size for batch in batches)
        self.position = batches[-1].end
        self.is_known = True

    def reach_end(self, offset: int) -> None:
        """Behind what was read there is nothing yet that readers may see."""
        if offset >= self.position:
            self.position = self._ends_at = offset
            self.is_known = True

    def take_read(self, low: int, high: int) -> Read | None:
        """What there is for who wants it; the watermarks are those that the broker has named last."""
        request = self.request
        if request is None:
            return None
        batches = self._take(request.bytes_max)
        self.front = batches[-1].end if self._ahead else self.position
        # Under an open transaction the log goes on, and readers stand at the end.
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
