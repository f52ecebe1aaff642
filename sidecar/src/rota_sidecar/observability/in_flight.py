"""
Measures processing time: the total time with records in flight, and the time from each dispatch to its last verdict.

Used by `counters`. All times are in ms of the driver's monotonic clock.
"""

from collections.abc import Callable, Sequence

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition

# Limit of open dispatches per partition; further ones are not measured.
OPEN_MAX = 10_000


class InFlightTimer:
    """Timer of records in flight. Invariant: `_busy_since_ms` is set if and only if records are in flight."""

    def __init__(self, record_s: Callable[[float], None]) -> None:
        self._record_s = record_s
        # By partition: its delivery epoch, and the time in ms of each open dispatch by its last offset.
        self._open: dict[Partition, tuple[int, dict[int, int]]] = {}
        self._busy_since_ms: int | None = None
        self._busy_ms = 0

    def busy_s(self, now_ms: int) -> float:
        """Return the total time in s with at least one record in flight."""
        going_on_ms = 0 if self._busy_since_ms is None else now_ms - self._busy_since_ms
        return (self._busy_ms + going_on_ms) / 1000

    def set_records(self, records: int, now_ms: int) -> None:
        """Set the number of records in flight."""
        if records and self._busy_since_ms is None:
            self._busy_since_ms = now_ms
        elif not records and self._busy_since_ms is not None:
            self._busy_ms += now_ms - self._busy_since_ms
            self._busy_since_ms = None

    def dispatched(self, delivery: do.Deliver, now_ms: int) -> None:
        """Record a dispatch; one of a new delivery epoch forgets the earlier ones."""
        delivery_epoch, dispatched_ms = self._open.get(delivery.partition, (0, {}))
        if delivery_epoch != delivery.delivery_epoch:
            dispatched_ms = {}
            self._open[delivery.partition] = delivery.delivery_epoch, dispatched_ms
        if len(dispatched_ms) < OPEN_MAX:
            dispatched_ms[delivery.dispatch.slices[-1].end - 1] = now_ms

    def completed(self, judgements: Sequence[on.Judgement], now_ms: int) -> None:
        """Record verdicts; measure each dispatch whose last record got one."""
        for each in judgements:
            delivery_epoch, dispatched_ms = self._open.get(each.partition, (0, {}))
            if delivery_epoch != each.delivery_epoch:
                continue
            if each.first == each.last:
                done = [each.last] if each.last in dispatched_ms else []
            else:
                done = [last for last in dispatched_ms if each.first <= last <= each.last]
            for last in done:
                self._record_s((now_ms - dispatched_ms.pop(last)) / 1000)

    def forget(self, partition: Partition) -> None:
        """Forget the open dispatches of a partition."""
        self._open.pop(partition, None)

    def clear(self) -> None:
        """Forget all open dispatches, after the application has detached."""
        self._open.clear()
