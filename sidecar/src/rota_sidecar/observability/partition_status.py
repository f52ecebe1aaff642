"""Status of each owned partition, for metrics and for Fleet. None means unknown."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rota_proto.log.columns import MalformedPayload
from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.delivery.states import PartitionView
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.batch_slicing import BatchSlicer, content_of
from rota_sidecar.observability.end_offsets import EndOffset, EndOffsets
from rota_sidecar.observability.progress import ProgressTimes
from rota_sidecar.observability.uncommitted import UncommittedTimestamps


class PartitionStatus(NamedTuple):
    """Status of one partition: offsets, times in ms of Unix time, and records in flight."""

    position: int | None
    committed: int | None
    start: int | None
    end: int | None
    # Timestamp of the first record without a final verdict; None: there is none.
    unresolved_ms: int | None
    # Timestamp of the first uncommitted record, if it was fetched.
    uncommitted_ms: int | None
    # True if all records up to the end offset are known to have a final verdict.
    is_done: bool
    rate: float | None
    in_flight: int
    # Present problem; empty: none.
    problem: str
    last_progress_ms: int | None

    @property
    def last_progress_s(self) -> float | None:
        """Unix time of the last progress in seconds."""
        return None if self.last_progress_ms is None else self.last_progress_ms / 1000

    @property
    def lag(self) -> int | None:
        """Number of uncommitted records."""
        if self.committed is None or self.start is None or self.end is None:
            return None
        return max(0, self.end - max(self.committed, self.start))

    def lag_s(self, now_s: float) -> float | None:
        """Age in s of the first uncommitted record; 0: there is none; None: unknown."""
        if self.lag is None:
            return None
        if self.lag and self.uncommitted_ms is not None:
            return max(0.0, now_s - self.uncommitted_ms / 1000)
        # If all records are done, only control markers are uncommitted.
        return 0.0 if self.lag == 0 or self.is_done else None


def partition_statuses(
    views: Mapping[Partition, PartitionView],
    ends: EndOffsets,
    slicer: BatchSlicer,
    uncommitted: UncommittedTimestamps,
    progress: ProgressTimes,
) -> Iterator[tuple[Partition, PartitionStatus]]:
    """Yield the status of each partition, sorted; that is also when `progress` learns of commits."""
    uncommitted.keep(views)
    for partition, view in sorted(views.items()):
        seen = ends.seen(partition)
        bounds = merged_bounds(view, seen)
        unresolved_ms = view.reported_ms
        if view.first_unresolved is not None:
            unresolved_ms = timestamp_ms(*view.first_unresolved, slicer)
        has_no_more = is_done(view, bounds)
        yield (
            partition,
            PartitionStatus(
                position=view.position,
                committed=view.committed,
                start=None if bounds is None else bounds.start,
                end=None if bounds is None else bounds.end,
                unresolved_ms=unresolved_ms,
                uncommitted_ms=_uncommitted_ms(partition, view, unresolved_ms, uncommitted),
                is_done=has_no_more,
                rate=None if seen is None else seen.rate,
                in_flight=view.in_flight,
                problem=view.problem,
                last_progress_ms=progress.observe(partition, view.committed, is_done=has_no_more),
            ),
        )


def _uncommitted_ms(
    partition: Partition, view: PartitionView, unresolved_ms: int | None, uncommitted: UncommittedTimestamps
) -> int | None:
    if view.committed is None:
        return None
    delivered_ms = uncommitted.first_ms(partition, view.committed)
    unresolved = view.position if view.first_unresolved is None else view.first_unresolved[1]
    # Without a finished record after the commit, the first unfinished record is the first uncommitted one.
    is_same = delivered_ms is None or unresolved is None or unresolved <= view.committed
    return unresolved_ms if is_same else delivered_ms


def merged_bounds(view: PartitionView, seen: EndOffset | None) -> Bounds | None:
    """Return the higher of two bounds, which only rise; None without a recent poll."""
    if seen is None or view.bounds is None:
        return None if seen is None else seen.bounds
    return Bounds(max(seen.bounds.start, view.bounds.start), max(seen.bounds.end, view.bounds.end))


def is_done(view: PartitionView, bounds: Bounds | None) -> bool:
    """Return True if every record up to the end offset was dispatched and has a final verdict."""
    if bounds is None or view.position is None or view.first_unresolved is not None:
        return False
    return view.position >= bounds.end and not view.in_flight and not view.waiting


def timestamp_ms(batch: Batch, offset: int, slicer: BatchSlicer) -> int | None:
    """Return the timestamp of a record; None: its batch is malformed."""
    content = content_of(batch)
    if content.max_timestamp_ms == content.base_timestamp_ms:
        return content.base_timestamp_ms
    try:
        times = slicer.columns_of(batch).timestamps_ms
    except MalformedPayload:
        return None
    return content.base_timestamp_ms if times is None else times[offset - content.base_offset]
