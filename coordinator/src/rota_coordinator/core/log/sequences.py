"""
Sequence numbers of the idempotent producers of one partition: duplicates, gaps and epochs.

Called by `appends` to check a batch, and by `partition` with every decided batch. The state depends on the sequence of
batches only, not on whether they are live or loaded.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.core.log.batch import Header
from rota_coordinator.core.log.config import REMEMBERED_BATCHES
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# Sequence numbers run from 0 to 2^31 - 1 and wrap around to 0.
SEQUENCES = 2**31
# A sequence number up to this far behind another counts as earlier.
REACH_MAX = SEQUENCES // 2


class Duplicate(NamedTuple):
    """The batch was appended before, at this offset."""

    base_offset: int


class Refused(NamedTuple):
    """The batch is rejected with this error."""

    error: pb.ErrorCode.ValueType
    # Details beyond the error code; may be empty.
    message: str = ""


class ProducerHistory(NamedTuple):
    """The last batches of a producer, all of one epoch."""

    # At most REMEMBERED_BATCHES, the latest last.
    batches: tuple[Header, ...]
    # Length of the gapless run of sequence numbers that ends with the last batch.
    contiguous_count: int


def check_sequence(known: ProducerHistory | None, header: Header) -> Duplicate | Refused | None:
    """Return None if the batch may follow the producer's history, else the duplicate or the refusal."""
    if known is None:
        return None
    last = known.batches[-1]
    if header.producer_epoch < last.producer_epoch:
        return Refused(pb.INVALID_PRODUCER_EPOCH)
    if header.producer_epoch > last.producer_epoch:
        return Refused(pb.OUT_OF_ORDER_SEQUENCE_NUMBER) if header.base_sequence else None
    for batch in known.batches:
        if (batch.base_sequence, batch.count) == (header.base_sequence, header.count):
            return Duplicate(batch.base_offset)
    behind = (following(last) - header.base_sequence) % SEQUENCES
    if behind == 0:
        return None
    # Only a batch that is known to be appended is a duplicate: its producer does not send it again.
    if header.count <= behind <= known.contiguous_count:
        return Refused(pb.DUPLICATE_SEQUENCE_NUMBER)
    return Refused(pb.OUT_OF_ORDER_SEQUENCE_NUMBER)


def following(header: Header) -> int:
    """Return the sequence number after the last record of the batch."""
    return (header.base_sequence + header.count) % SEQUENCES


def with_batch(known: ProducerHistory | None, header: Header) -> ProducerHistory:
    """Return the history of the producer with one more batch."""
    if known is None or known.batches[-1].producer_epoch != header.producer_epoch:
        return ProducerHistory((header,), min(header.count, REACH_MAX))
    batches = (*known.batches[1 - REMEMBERED_BATCHES :], header)
    return ProducerHistory(batches, min(known.contiguous_count + header.count, REACH_MAX))


@dataclass(slots=True)
class Sequences:
    """
    The idempotent producers of one partition. Invariant: they are in the order of their last batch, the latest last.
    """

    producers_max: int
    _known: dict[int, ProducerHistory] = field(default_factory=dict)

    def of(self, producer_id: int) -> ProducerHistory | None:
        """Return the history of a producer; None: it has none."""
        return self._known.get(producer_id)

    def __iter__(self) -> Iterator[tuple[int, ProducerHistory]]:
        return iter(self._known.items())

    def add_batch(self, header: Header) -> None:
        """Add a batch to the history of its producer."""
        self._known[header.producer_id] = with_batch(self._known.pop(header.producer_id, None), header)
        if len(self._known) > self.producers_max:
            del self._known[next(iter(self._known))]

    def forget_before(self, offset: int) -> None:
        """
        Forget batches before the offset, which retention removed.

        A producer without batches may start a new sequence, as it may after a restart of the coordinator.
        """
        self.forget(lambda batch: batch.next_offset <= offset)

    def forget(self, is_removed: Callable[[Header], bool]) -> None:
        """Forget removed batches; of each producer they are the oldest ones."""
        for producer_id, known in list(self._known.items()):
            if not is_removed(known.batches[0]):
                continue
            left = tuple(batch for batch in known.batches if not is_removed(batch))
            if left:
                self._known[producer_id] = ProducerHistory(
                    left, min(known.contiguous_count, sum(batch.count for batch in left))
                )
            else:
                del self._known[producer_id]
