"""
Timestamps of delivered batches until they are committed, so that the age of the first uncommitted record is known.

The ledger forgets a record with its verdict; its commit follows up to an interval later. Updated by `delivery.driver` as an
observer, and read by `partition_status`.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from typing_extensions import override

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.observer import Observer
from rota_sidecar.engines.batch_slicing import content_of
from rota_sidecar.membership.driver import MemberEvent

# Limit of batches per partition; beyond it, the last one is extended over all later ones.
BATCHES_MAX = 10_000


class DeliveredBatch(NamedTuple):
    """End offset and first timestamp of a delivered batch."""

    end: int
    # Unix time of its first record.
    timestamp_ms: int


class DeliveredBatches:
    """Delivered batches of one delivery epoch. Invariant: their end offsets rise."""

    def __init__(self, delivery_epoch: int) -> None:
        self.delivery_epoch = delivery_epoch
        self._batches: deque[DeliveredBatch] = deque()

    def add(self, batch: Batch) -> None:
        """Record a delivered batch; a batch that is delivered again is ignored."""
        if self._batches and batch.end <= self._batches[-1].end:
            return
        if len(self._batches) == BATCHES_MAX:
            self._batches[-1] = self._batches[-1]._replace(end=batch.end)
        else:
            self._batches.append(DeliveredBatch(batch.end, content_of(batch).base_timestamp_ms))

    def first_ms(self, committed: int) -> int | None:
        """Return the timestamp of the first batch that ends after the committed offset, and forget earlier batches."""
        while self._batches and self._batches[0].end <= committed:
            self._batches.popleft()
        return self._batches[0].timestamp_ms if self._batches else None


class UncommittedTimestamps(Observer):
    """Timestamps of uncommitted records of all owned partitions."""

    observed_events = frozenset()
    observed_actions = frozenset({do.Deliver})

    def __init__(self) -> None:
        self._tracks: dict[Partition, DeliveredBatches] = {}

    def first_ms(self, partition: Partition, committed: int) -> int | None:
        """Return the timestamp in ms of the first uncommitted record, to within its batch; None: there is none."""
        track = self._tracks.get(partition)
        return None if track is None else track.first_ms(committed)

    def keep(self, held: Collection[Partition]) -> None:
        """Forget all other partitions."""
        for partition in self._tracks.keys() - set(held):
            del self._tracks[partition]

    @override
    def on_member_event(self, event: MemberEvent, now_ms: int) -> None:
        """Ignore events of the member."""

    @override
    def on_event(self, event: on.Event, now_ms: int) -> None:
        """Ignore events of deliveries."""

    @override
    def on_actions(self, actions: Sequence[do.Action], in_flight: int, now_ms: int) -> None:
        for action in actions:
            if isinstance(action, do.Deliver):
                track = self._tracks.get(action.partition)
                if track is None or track.delivery_epoch != action.delivery_epoch:
                    track = self._tracks[action.partition] = DeliveredBatches(action.delivery_epoch)
                for batch_slice in action.dispatch.slices:
                    track.add(batch_slice.batch)
