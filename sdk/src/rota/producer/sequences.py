"""
Sequence numbers of batches, by which the log detects duplicates, and the meaning of each answer for its batch.

Pure. A partition has at most one request in flight, so only its numbers can be in doubt: it is retried under the same
numbers until its outcome is known, or its producer id is abandoned.
"""

import enum
from typing import NamedTuple

from rota import errors
from rota.producer.accumulator import Queue

SEQUENCE_MASK = 0x7FFF_FFFF
NO_PRODUCER = -1


class Identity(NamedTuple):
    """Producer id and epoch; `transactional_id` is empty outside of transactions."""

    producer_id: int
    epoch: int
    transactional_id: str = ""


NO_IDENTITY = Identity(NO_PRODUCER, NO_PRODUCER)
"""Identity of producers without idempotence."""


class Sequences:
    """The next number for each partition, under one identity."""

    def __init__(self) -> None:
        self._identity = NO_IDENTITY
        self._next: dict[Queue, int] = {}

    def first(self, queue: Queue, identity: Identity) -> int:
        """Return the next sequence number of a partition; a new identity starts at 0."""
        if identity != self._identity:
            self._identity = identity
            self._next.clear()
        return self._next.get(queue, 0)

    def written(self, queue: Queue, identity: Identity, first: int, count: int) -> None:
        """Advance the next sequence number past `count` records that are in the log."""
        if identity == self._identity:
            self._next[queue] = first + count & SEQUENCE_MASK


class AttemptResult(enum.Enum):
    """Result of one attempt to write batches."""

    WRITTEN = enum.auto()
    # In the log since an earlier attempt; the offset is no longer known.
    ALREADY_WRITTEN = enum.auto()
    RETRY = enum.auto()
    # Retry as another producer: the log has numbers of this one that do not fit, and rejected the batches.
    RETRY_WITH_NEW_IDENTITY = enum.auto()
    FAILED = enum.auto()


SEQUENCE_ERRORS = (
    errors.OutOfOrderSequenceNumber,
    errors.UnknownProducerId,
    errors.InvalidProducerEpoch,
    errors.InvalidProducerIdMapping,
)


def attempt_result(error: errors.RotaError | None, identity: Identity) -> AttemptResult:
    """Classify the answer to batches that were sent under an identity."""
    if error is None:
        return AttemptResult.WRITTEN
    if isinstance(error, errors.DuplicateSequenceNumber):
        return AttemptResult.ALREADY_WRITTEN
    if error.retriable:
        return AttemptResult.RETRY
    if isinstance(error, SEQUENCE_ERRORS) and not identity.transactional_id and identity != NO_IDENTITY:
        return AttemptResult.RETRY_WITH_NEW_IDENTITY
    return AttemptResult.FAILED
