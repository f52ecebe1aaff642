"""
Log compaction: which records of a partition are removed because a later one has their key.

A pass has two phases, each in bounded steps that the shell (`runtime.compaction`) performs. `KeyIndex` first takes the batches of
the dirty section, which begins where the last pass ended, and keeps the last offset of each key. `CleaningPass` then decides from
the log start on: records with a later offset in the index are removed, and so are aborted ones. Offsets never change.

The last batch of a log, recent batches and open transactions are not compacted: `dirty_end` says where they begin.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.batch import Control, Header, Row
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.partition import Cleaned, Partition
from rota_coordinator.core.log.sparse import records_of, with_records, without_producer

# Keys are compared by hash, as in Kafka's offset map, so that long ones take no more memory.
HASH_BYTES = 16


class Change(NamedTuple):
    """A stored batch, and the row that replaces it; None: the batch is removed."""

    header: Header
    row: Row | None


class Batch(NamedTuple):
    """A batch of a pass, with what the partition's state says about it."""

    row: Row
    # Its records belong to an aborted transaction.
    is_aborted: bool
    # It belongs to the history of an idempotent producer, which may send it again or send the next one.
    is_retained: bool


class PassBounds(NamedTuple):
    """The state of a partition when a pass begins; its records before `end` are committed or aborted."""

    # Where the index begins.
    dirty_start: int
    # Last stable offset; the last batch of the log ends behind it or at it.
    end: int
    high_watermark: int
    # Batches that were appended later are not compacted yet.
    appended_until_ms: int
    # Base offsets of batches in the histories of producers.
    known_batches: Collection[int]
    # Histories of producers whose last batch was appended earlier have expired.
    producers_since_ms: int
    # Tombstones before this offset are removed.
    tombstones_until: int


def bounds(partition: Partition, config: LogConfig, now_ms: WallMs) -> PassBounds:
    """Return the bounds of a pass that begins now."""
    cleaned = partition.cleaned
    return PassBounds(
        dirty_start=max(cleaned.until, partition.start),
        end=partition.last_stable_offset,
        high_watermark=partition.high_watermark,
        appended_until_ms=now_ms - config.min_compaction_lag_ms,
        known_batches=frozenset(
            batch.base_offset for _, known in partition.sequences for batch in known.batches
        ),
        producers_since_ms=now_ms - config.sequences_expire_ms,
        tombstones_until=cleaned.tombstones_until if now_ms >= cleaned.tombstones_ms else 0,
    )


def is_due(dirty_bytes: int, total_bytes: int, config: LogConfig) -> bool:
    """Return whether a pass is worth its cost: enough of the log was appended since the last one."""
    return dirty_bytes > 0 and dirty_bytes >= config.min_cleanable_dirty_ratio * total_bytes


def is_cleanable(row: Row, limits: PassBounds) -> bool:
    """Return whether a batch may be compacted now; if not, neither may those behind it."""
    return (
        row.header.next_offset <= limits.end
        and row.header.next_offset < limits.high_watermark
        and row.appended_ms <= limits.appended_until_ms
    )


def describe(row: Row, partition: Partition, limits: PassBounds) -> Batch:
    """Return the batch with the partition's knowledge about it."""
    is_retained = (
        row.header.base_offset in limits.known_batches and row.appended_ms > limits.producers_since_ms
    )
    return Batch(row, partition.is_aborted(row.header), is_retained)


class KeyIndex:
    """
    The last offset of each key in the dirty section.

    Invariant: it has all records up to `until`, and at most `keys_max` keys more than its last batch brought.
    """

    def __init__(self, begin: int, keys_max: int) -> None:
        self.until = begin
        self._keys_max = keys_max
        self._last: dict[bytes, int] = {}

    def add(self, batches: Iterable[Batch]) -> bool:
        """Add batches in offset order; return whether there is room for more. Raises MalformedPayload."""
        for row, is_aborted, _ in batches:
            if len(self._last) >= self._keys_max:
                return False
            if row.header.control is Control.RECORDS and not is_aborted:
                records = records_of(row)
                for offset, key in zip(records.offsets, records.keys(), strict=True):
                    if key is not None:
                        self._last[hashed(key)] = offset
            self.until = row.header.next_offset
        return len(self._last) < self._keys_max

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Return whether a later record has the key."""
        return self._last.get(hashed(key), offset) > offset


def hashed(key: bytes) -> bytes:
    """Return the hash of a key."""
    return blake2b(key, digest_size=HASH_BYTES).digest()


@dataclass(slots=True)
class CleaningPass:
    """
    The second phase of a pass: takes the batches of a partition in offset order, from the log start to the end of the index.

    Invariant: of each producer and each transaction, what is left in the log is the end of what was there. So a crash between
    two steps leaves no transaction without its marker, and no producer with an earlier last batch than it had.
    """

    index: KeyIndex
    # Tombstones before this offset are removed: each reader that saw an earlier record of their key had the time to see them.
    tombstones_until: int
    # Producers of transactional batches that are left, whose marker has to be left too.
    _open: set[int] = field(default_factory=set)
    # Base offset of the first batch that keeps superseded records, because its producer may still need it.
    _first_unclean: int | None = None

    @property
    def clean_until(self) -> int:
        """The offset at which the next index begins: before it each key has at most one record."""
        return self.index.until if self._first_unclean is None else self._first_unclean

    def decide(self, batches: Iterable[Batch]) -> list[Change]:
        """Return the batches that change; the others stay as they are. Raises MalformedPayload."""
        changes: list[Change] = []
        for batch in batches:
            changed = self._decide(batch)
            if changed is not None:
                changes.append(changed)
        return changes

    def _decide(self, batch: Batch) -> Change | None:
        header = batch.row.header
        if header.control is not Control.RECORDS:
            # Consumers are not sent markers, so one is needed only as long as a batch of its transaction is left.
            is_needed = header.producer_id in self._open
            self._open.discard(header.producer_id)
            return None if is_needed else Change(header, None)
        if batch.is_retained:
            self._retain(batch)
            return None
        return Change(header, None) if batch.is_aborted else self._clean(batch.row)

    def _retain(self, batch: Batch) -> None:
        """Note a batch that stays as it is."""
        header = batch.row.header
        if header.transactional:
            self._open.add(header.producer_id)
        if self._first_unclean is None and not batch.is_aborted:
            records = records_of(batch.row)
            keys = zip(records.offsets, records.keys(), strict=True)
            if any(key is not None and self.index.is_superseded(key, offset) for offset, key in keys):
                self._first_unclean = header.base_offset

    def _clean(self, row: Row) -> Change | None:
        records = records_of(row)
        keys, values = records.keys(), records.values()
        kept = [
            index
            for index, (offset, key, value) in enumerate(zip(records.offsets, keys, values, strict=True))
            # Kafka removes records without a key, too: they were appended before the topic was compacted.
            if key is not None
            and not self.index.is_superseded(key, offset)
            and (value is not None or offset >= self.tombstones_until)
        ]
        if not kept:
            return Change(row.header, None)
        if len(kept) < len(keys):
            return Change(row.header, with_records(row, records, kept))
        cleaned = without_producer(row)
        return None if cleaned == row else Change(row.header, cleaned)


def after_pass(before: Cleaned, done: CleaningPass, now_ms: WallMs, delete_retention_ms: int) -> Cleaned:
    """
    Return the state after a pass.

    Tombstones stay for `delete_retention_ms` after the pass that removed the earlier records of their keys. One interval is
    measured at a time; tombstones behind its end wait for the next one.
    """
    if now_ms < before.tombstones_ms:
        return before._replace(until=done.clean_until, indexed_until=done.index.until)
    return Cleaned(done.clean_until, done.index.until, done.clean_until, now_ms + delete_retention_ms)
