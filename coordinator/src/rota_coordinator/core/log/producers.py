"""
Producer ids, and the transactional ids that they are assigned to.

Changed by `replay` only. A transactional id has one producer id, one epoch and at most one open transaction at a time.
`state` derives the partitions of an open transaction from the batches.
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

# Id 0 is never assigned, so a batch that leaves producer_id unset names an unknown producer.
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
    """An open transaction of one transactional id."""

    begun_at_ms: int
    # Start of its timeout on the monotonic clock: when the transaction began or was loaded.
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
    # Outcome of the last transaction, kept while its producer may retry EndTransaction.
    ended: Outcome | None = None

    @property
    def deadline_ms(self) -> int | None:
        """The time at which the open transaction times out and is aborted; None: no open transaction."""
        return None if self.open is None else self.open.counted_from_ms + self.timeout_ms

    def made(self) -> ProducerRegistered:
        """Return the event that registers the producer with its present identity."""
        return ProducerRegistered(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            transaction_timeout_ms=self.timeout_ms,
            at_ms=self.used_at_ms,
        )

    def replay_made(self, event: ProducerRegistered) -> None:
        """Apply a new identity of the producer."""
        if self.ended is not None and self.ended.identity != self.identity:
            # Two epochs behind: a retry by the producer that ended that transaction is fenced.
            self.ended = None
        self.identity = Identity(event.producer_id, event.producer_epoch)
        self.timeout_ms = event.transaction_timeout_ms
        self.used_at_ms = event.at_ms

    def replay_ended(self, event: TransactionEnded) -> None:
        """Apply the end of the transaction; a producer that was fenced before has no outcome to retry."""
        self.open = None
        identity = Identity(event.producer_id, event.producer_epoch)
        self.ended = Outcome(identity, event.committed) if identity == self.identity else None

    def snapshot(self) -> Iterator[LogEvent]:
        """Yield the events that restore the present state."""
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
    """Return the event of an ended transaction."""
    return TransactionEnded(
        transactional_id=transactional_id,
        producer_id=end.identity.producer_id,
        producer_epoch=end.identity.epoch,
        committed=end.committed,
    )


@dataclass(slots=True)
class Producers:
    """All producers. Invariant: transactional ids are in the order of their last use, the latest last."""

    transactional: dict[str, TransactionalProducer] = field(default_factory=dict)
    # Transactional ids with an open transaction.
    open: dict[str, TransactionalProducer] = field(default_factory=dict)
    _owners: dict[int, str] = field(default_factory=dict)
    # All ids below this one may have been assigned.
    next_producer_id: int = FIRST_PRODUCER_ID
    # Wall clock of events and records; transaction timeouts are measured on the monotonic clock.
    wall: WallClock = field(default_factory=WallClock)

    def is_transactional(self, producer_id: int) -> bool:
        """Return whether the producer id belongs to a transactional id."""
        return producer_id in self._owners

    def replay(self, event: LogEvent) -> None:
        """Apply an event about producers; other events are ignored."""
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
                pass  # an event of a later version

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
        """
        Restart the timeout of every open transaction, because producers could not end them while the log was not
        served.
        """
        for known in self.open.values():
            assert known.open is not None
            known.open.counted_from_ms = self.wall.monotonic(now_ms)

    def snapshot(self) -> Iterator[LogEvent]:
        """Yield the events that restore the present state."""
        yield LogEvent(producer_ids_allocated=ProducerIdsAllocated(next_producer_id=self.next_producer_id))
        for known in self.transactional.values():
            yield from known.snapshot()
