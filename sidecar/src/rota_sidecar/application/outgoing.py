"""
The queue of dispatched records that are not sent yet, and their packing into messages. Used by `attachment`.

A message takes as many records as fit, in order of dispatch; a batch that is too large for a message is split.
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
# Limit of the batches in a message; the rest is for the fields around them, counted with their maximum size.
BATCHES_BYTES_MAX = MESSAGE_BYTES_MAX - (64 << 10)
AROUND_BYTES = 512


class Part(NamedTuple):
    """A slice of one dispatch."""

    delivery_epoch: int
    partition: Partition
    tenure: Tenure
    deliveries: int
    turn: int
    batch_slice: BatchSlice

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        batch = self.batch_slice.batch
        return batch.size * self.batch_slice.count // batch.count

    def cut(self, count: int) -> "tuple[Part, Part]":
        """Split into the first `count` records and the others."""
        batch_slice = self.batch_slice
        at = batch_slice.first + count
        return (
            self._replace(batch_slice=BatchSlice(batch_slice.batch, batch_slice.first, at)),
            self._replace(batch_slice=BatchSlice(batch_slice.batch, at, batch_slice.end)),
        )


class Taken(NamedTuple):
    """The content of one message."""

    partitions: Sequence[pb.PartitionRecords]
    # The approximate bytes of these records and of those that cannot be sent, as counted when they were dispatched.
    size: int
    # Verdicts on records that cannot be sent.
    judgements: Sequence[on.Judgement]


class Outgoing:
    """Invariant: records are in order of dispatch, and each one is taken, dropped or in the queue."""

    def __init__(self, slicer: BatchSlicer) -> None:
        self._slicer = slicer
        self._parts: deque[Part] = deque()

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def records(self) -> int:
        """The number of queued records."""
        return sum(part.batch_slice.count for part in self._parts)

    def put(self, deliver: do.Deliver) -> tuple[int, int]:
        """Enqueue a dispatch; return its number of records and its approximate bytes."""
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
        """Remove matching parts; return their number of records and their approximate bytes."""
        void = [part for part in self._parts if is_void(part)]
        if void:
            self._parts = deque(part for part in self._parts if not is_void(part))
        return sum(part.batch_slice.count for part in void), sum(part.size for part in void)

    def take(self, records_max: int) -> Taken:
        """Take the content of one message: as many records as fit, at most `records_max`."""
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
                found.leave_out(part, f"the record has {size:,} bytes, too many for a message of 4 MiB")
        return found.taken()


class _Filling:
    """A message in construction. Invariant: its batches have at most `BATCHES_BYTES_MAX` bytes."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._size = 0
        self._last: Part | None = None
        self._partitions: list[pb.PartitionRecords] = []
        self._judgements: list[on.Judgement] = []

    def add(self, part: Part, batch: RecordBatch, size: int) -> None:
        """Append a part with its batch."""
        self.records += part.batch_slice.count
        self.bytes += size
        self._size += part.size
        # Only the first batch of a group may begin before the records that are meant.
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
        """Judge the records of a part as dead letters, because they are too large or damaged."""
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
        """
        Return true if the part belongs to the group of the part before it: all fields except the slice are equal, and its records
        come later in the log. The application ignores the records of a group that come before its first one.
        """
        last = self._last
        return last is not None and last[:-1] == part[:-1] and last.batch_slice.end <= part.batch_slice.first
