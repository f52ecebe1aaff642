"""
Records that the application was handed, on their way into messages.

Used by `attachment`. All that waits goes into one message, as far as it fits; a batch that alone is too large goes in
parts.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rota_proto.log.columns import MalformedPayload
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.translating import partition_to, tenure_to
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.batches import BatchSlice
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.engines.batch_slicing import BatchSlicer
from rota_sidecar.engines.records import RecordBatch

MESSAGE_BYTES_MAX = 4 << 20
# Without the names and numbers around the batches; those are counted by what they can be at most.
BATCHES_BYTES_MAX = MESSAGE_BYTES_MAX - (64 << 10)
AROUND_BYTES = 512


class Part(NamedTuple):
    """A piece of what was handed out together."""

    delivery_epoch: int
    partition: Partition
    tenure: Tenure
    deliveries: int
    turn: int
    batch_slice: BatchSlice

    @property
    def size(self) -> int:
        """About so many bytes."""
        batch = self.batch_slice.batch
        return batch.size * self.batch_slice.count // batch.count

    def cut(self, count: int) -> "tuple[Part, Part]":
        """Its first records, and the others."""
        batch_slice = self.batch_slice
        at = batch_slice.first + count
        return (
            self._replace(batch_slice=BatchSlice(batch_slice.batch, batch_slice.first, at)),
            self._replace(batch_slice=BatchSlice(batch_slice.batch, at, batch_slice.end)),
        )


class Taken(NamedTuple):
    """What goes into one message."""

    partitions: Sequence[pb.PartitionRecords]
    # What these, and those that could not be sent, were counted with when they came.
    size: int
    # On records that nobody could ever send.
    judgements: Sequence[on.Judgement]


class Outgoing:
    """In the order in which they were handed out."""

    def __init__(self, slicer: BatchSlicer) -> None:
        self._slicer = slicer
        self._parts: deque[Part] = deque()

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def records(self) -> int:
        """How many wait."""
        return sum(part.batch_slice.count for part in self._parts)

    def put(self, deliver: do.Deliver) -> tuple[int, int]:
        """Send these after all others; how many records they are, and about how many bytes."""
        dispatch = deliver.dispatch
        parts = [
            Part(
                deliver.delivery_epoch,
                deliver.partition,
                deliver.tenure,
                dispatch.deliveries,
                dispatch.turn,
                batch_slice,
            )
            for batch_slice in dispatch.slices
        ]
        self._parts += parts
        return dispatch.count, sum(part.size for part in parts)

    def drop(self, is_void: Callable[[Part], bool]) -> tuple[int, int]:
        """Do not send these; how many records they were, and about how many bytes."""
        void = [part for part in self._parts if is_void(part)]
        if void:
            self._parts = deque(part for part in self._parts if not is_void(part))
        return sum(part.batch_slice.count for part in void), sum(part.size for part in void)

    def take(self, records_max: int) -> Taken:
        """As many as fit into a message, up to so many records."""
        found = _Filling()
        while self._parts and found.records < records_max:
            part = self._parts.popleft()
            room = records_max - found.records
            if part.batch_slice.count > room:
                part, rest = part.cut(room)
                self._parts.appendleft(rest)
            try:
                batch = self._slicer.batch_for(part.batch_slice)
            except MalformedPayload as damage:
                found.leave_out(part, str(damage))
                continue
            size = batch.ByteSize() + AROUND_BYTES
            if found.bytes + size <= BATCHES_BYTES_MAX:
                found.add(part, batch, size)
            elif found.bytes:
                self._parts.appendleft(part)
                break
            elif part.batch_slice.count > 1:
                first, rest = part.cut(part.batch_slice.count // 2)
                self._parts.extendleft((rest, first))
            else:
                found.leave_out(part, f"with {size:,} bytes the record fits into no message of 4 MiB")
        return found.taken()


class _Filling:
    """A message that is being filled."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._size = 0
        self._last: Part | None = None
        self._partitions: list[pb.PartitionRecords] = []
        self._judgements: list[on.Judgement] = []

    def add(self, part: Part, batch: RecordBatch, size: int) -> None:
        """It fits."""
        self.records += part.batch_slice.count
        self.bytes += size
        self._size += part.size
        # Which records of a batch are not meant can be said of the first one only.
        if not self._goes_on(part) or batch.base_offset != part.batch_slice.first:
            self._partitions.append(
                pb.PartitionRecords(
                    partition=partition_to(part.partition),
                    tenure=tenure_to(part.tenure),
                    delivery_epoch=part.delivery_epoch,
                    deliveries=part.deliveries,
                    turn=part.turn,
                    first_offset=part.batch_slice.first,
                )
            )
        self._partitions[-1].batches.append(batch)
        self._last = part

    def leave_out(self, part: Part, reason: str) -> None:
        """It never fits, or is damaged."""
        self._size += part.size
        self._judgements += [
            on.Judgement(
                part.delivery_epoch, part.partition, offset, offset, Verdict.DEAD_LETTER, reason=reason
            )
            for offset in range(part.batch_slice.first, part.batch_slice.end)
        ]

    def taken(self) -> Taken:
        return Taken(self._partitions, self._size, self._judgements)

    def _goes_on(self, part: Part) -> bool:
        """Whether it belongs to the same as the one before, by all that is said of both."""
        return self._last is not None and self._last[:-1] == part[:-1]
