"""
How long the application has records in its hands: in all, and from each hand-over to the verdict on its last record.

Used by `counts`.
"""

from collections.abc import Callable, Sequence

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition

# Hand-overs without a verdict that are kept in mind for each partition; more are not measured.
OPEN_MAX = 10_000


class InFlightTimer:
    """Empty to begin with."""

    def __init__(self, record_s: Callable[[float], None]) -> None:
        self._record_s = record_s
        # The ledger of each partition, and when what ended with which offset was handed over.
        self._open: dict[Partition, tuple[int, dict[int, int]]] = {}
        self._busy_since_ms: int | None = None
        self._busy_ms = 0

    def busy_s(self, now_ms: int) -> float:
        """How long it had something, all in all."""
        going_on_ms = 0 if self._busy_since_ms is None else now_ms - self._busy_since_ms
        return (self._busy_ms + going_on_ms) / 1000

    def set_records(self, records: int, now_ms: int) -> None:
        """It has so many now."""
        if records and self._busy_since_ms is None:
            self._busy_since_ms = now_ms
        elif not records and self._busy_since_ms is not None:
            self._busy_ms += now_ms - self._busy_since_ms
            self._busy_since_ms = None

    def dispatched(self, delivery: do.Deliver, now_ms: int) -> None:
        """It gets more."""
        delivery_epoch, dispatched_ms = self._open.get(delivery.partition, (0, {}))
        if delivery_epoch != delivery.delivery_epoch:
            dispatched_ms = {}
            self._open[delivery.partition] = delivery.delivery_epoch, dispatched_ms
        if len(dispatched_ms) < OPEN_MAX:
            dispatched_ms[delivery.dispatch.slices[-1].end - 1] = now_ms

    def completed(self, judgements: Sequence[on.Judgement], now_ms: int) -> None:
        """It has done something."""
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
        """What it has of the partition is nobody's concern any more."""
        self._open.pop(partition, None)

    def clear(self) -> None:
        """It is gone."""
        self._open.clear()
