"""
Producer ids, and the transactional ids whose producers they are.

Changed by `replay` only. A transactional id has one producer id and one epoch at a time, and its transaction is open or
not; where an open one has written is known from the batches (`state`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.core.instants import MonotonicMs, WallClock, WallMs
from rota_coordinator.core.log.batch import NO_PRODUCER
from rota_proto.coordinator.v1.log_events_pb2 import (
    GroupAdded,
    LogEvent,
    ProducerIdsAllocated,
    ProducerRegistered,
    TransactionBegun,
    TransactionEnded,
)

# A batch whose sender forgot to say that it has no producer is then of a producer that never was.
FIRST_PRODUCER_ID = 1


class Identity(NamedTuple):
    """The producer id and epoch with which a producer identifies itself."""

    producer_id: int
    epoch: int


class Outcome(NamedTuple):
    """The outcome of a transaction that its producer ended, and the identity under which it was open."""

    identity: Identity
    committed: bool


@dataclass(slots=True)
class Transaction:
    """An open transaction."""

    begun_at_ms: int
    # Its timeout is counted from here on the monotonic clock: from when it began, or was read from the file.
    counted_from_ms: MonotonicMs
    groups: dict[str, GroupAdded] = field(default_factory=dict)


@dataclass(slots=True)
class TransactionalProducer:
    """The producer of a transactional id, and its open or last transaction."""

    transactional_id: str
    identity: Identity
    timeout_ms: int
    used_at_ms: int
    open: Transaction | None = None
    # The last transaction, as long as its producer may ask again what became of it.
    ended: Outcome | None = None

    @property
    def deadline_ms(self) -> int | None:
        """When, on the monotonic clock, the open transaction is aborted over its producer's head."""
        return None if self.open is None else self.open.counted_from_ms + self.timeout_ms

    def made(self) -> ProducerRegistered:
        """The event that says who the producer is."""
        return ProducerRegistered(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            transaction_timeout_ms=self.timeout_ms,
            at_ms=self.used_at_ms,
        )

    def replay_made(self, event: ProducerRegistered) -> None:
        """Another identity."""
        if self.ended is not None and self.ended.identity != self.identity:
            # It was the last but one that ended a transaction: whoever asks about that now is fenced.
            self.ended = None
        self.identity = Identity(event.producer_id, event.producer_epoch)
        self.timeout_ms = event.transaction_timeout_ms
        self.used_at_ms = event.at_ms

    def replay_ended(self, event: TransactionEnded) -> None:
        """The transaction is decided. When its producer was fenced before, that one did not end it."""
        self.open = None
        identity = Identity(event.producer_id, event.producer_epoch)
        self.ended = Outcome(identity, event.committed) if identity == self.identity else None

    def snapshot(self) -> Iterator[LogEvent]:
        """Events that say the same as all that were replayed."""
        if self.ended is not None:
            before = self.made()
            before.producer_id, before.producer_epoch = self.ended.identity
            yield LogEvent(producer_registered=before)
            yield LogEvent(transaction_ended=ended(self.transactional_id, self.ended))
        yield LogEvent(producer_registered=self.made())
        if self.open is not None:
            begun = TransactionBegun(transactional_id=self.transactional_id, at_ms=self.open.begun_at_ms)
            yield LogEvent(transaction_begun=begun)
            for added in self.open.groups.values():
                yield LogEvent(group_added=added)


def ended(transactional_id: str, end: Outcome) -> TransactionEnded:
    """The event that says how a transaction ended."""
    return TransactionEnded(
        transactional_id=transactional_id,
        producer_id=end.identity.producer_id,
        producer_epoch=end.identity.epoch,
        committed=end.committed,
    )


@dataclass(slots=True)
class Producers:
    """All of them. The transactional id that was used last stands last."""

    transactional: dict[str, TransactionalProducer] = field(default_factory=dict)
    # Those with an open transaction.
    open: dict[str, TransactionalProducer] = field(default_factory=dict)
    _owners: dict[int, str] = field(default_factory=dict)
    # All ids below this one may have been given out.
    next_producer_id: int = FIRST_PRODUCER_ID
    # The clock of events and records; the timeouts of transactions are measured on the monotonic one.
    wall: WallClock = field(default_factory=WallClock)

    def is_transactional(self, producer_id: int) -> bool:
        """Return whether the producer id belongs to a transactional id."""
        return producer_id in self._owners

    def replay(self, event: LogEvent) -> None:
        """Take over what an event says of producers; others are not ours."""
        match event.WhichOneof("event"):
            case "producer_ids_allocated":
                self.next_producer_id = event.producer_ids_allocated.next_producer_id
            case "producer_registered":
                self._made(event.producer_registered)
            case "transaction_begun":
                self._begun(event.transaction_begun)
            case "group_added":
                transaction = self.transactional[event.group_added.transactional_id].open
                assert transaction is not None
                transaction.groups[event.group_added.group_id] = event.group_added
            case "transaction_ended":
                known = self.transactional[event.transaction_ended.transactional_id]
                known.replay_ended(event.transaction_ended)
                self.open.pop(known.transactional_id, None)
            case _:
                pass  # of a later version

    def _begun(self, event: TransactionBegun) -> None:
        known = self.transactional[event.transactional_id]
        known.open = Transaction(event.at_ms, self.wall.monotonic(WallMs(event.at_ms)))
        self.open[known.transactional_id] = known

    def _made(self, event: ProducerRegistered) -> None:
        known = self.transactional.pop(event.transactional_id, None)
        if known is not None:
            del self._owners[known.identity.producer_id]
        if event.producer_id == NO_PRODUCER:
            return
        if known is None:
            identity = Identity(event.producer_id, event.producer_epoch)
            known = TransactionalProducer(
                event.transactional_id, identity, event.transaction_timeout_ms, event.at_ms
            )
        else:
            known.replay_made(event)
        self.transactional[event.transactional_id] = known
        self._owners[event.producer_id] = event.transactional_id

    def loaded(self, now_ms: WallMs) -> None:
        """Restart the timeout of every open transaction; while no process served the log, none could be ended."""
        for known in self.open.values():
            assert known.open is not None
            known.open.counted_from_ms = self.wall.monotonic(now_ms)

    def snapshot(self) -> Iterator[LogEvent]:
        """Events that say the same as all that were replayed."""
        yield LogEvent(producer_ids_allocated=ProducerIdsAllocated(next_producer_id=self.next_producer_id))
        for known in self.transactional.values():
            yield from known.snapshot()
