"""The port of a store, called by the runtime. The records of a slot form a log; one process at a time appends to it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from rota_coordinator.core.log.batch import Header, Row
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.core.log.retention import Oldest
from rota_coordinator.core.slots.table import Table
from rota_proto.coordinator.v1.records_pb2 import Record

# The number of the embedded log's event log, before those of the slots; it also owns the rows of records.
LOG_SLOT = -1
# A longer lease in the table indicates that the database's clock was set back (see `store.postgres`).
LEASE_MS_MAX = 60_000


class StoreError(Exception):
    """The store failed. The outcome of an append is then unknown."""


class DamagedBatch(StoreError):
    """A batch has a wrong checksum; `row` is its stored content if its header is intact."""

    def __init__(self, message: str, row: Row | None = None) -> None:
        super().__init__(message)
        self.row = row


class SlotLost(StoreError):
    """Another process has claimed the slot since: the append was rejected, as all later ones of this epoch will be."""


class StoreTakenOver(SlotLost):
    """Another process has taken over the store, which allows one writer: this process can write to no slot any more."""


class LeaseLost(StoreError):
    """The lease of this process expired; other processes may own its slots."""


class Claim(NamedTuple):
    """A claimed slot."""

    # The epoch that authorizes appends.
    epoch: int
    # Handover snapshot of the previous owner; empty: there was none, or it crashed.
    handover: bytes


def check_slots(name: str, found: int, wanted: int | None) -> None:
    """Raise StoreError if the store was created with another number of slots than is wanted; None: any number."""
    if wanted not in (None, found):
        raise StoreError(
            f"{name} has {found} slots, not {wanted}, and keeps them, because the number decides in which slot a group is; start with "
            f"--slots {found} or without --slots, or choose a new store with --store"
        )


class Store(Protocol):
    """A durable log for each slot."""

    # Number of slots, from 0 on; decided when the store was created.
    slots: int

    async def claim(self, slot: int) -> Claim:
        """
        Claim the slot, and fence its previous owner. Fails with SlotLost if another live process owns it, and with
        LeaseLost if the lease of this process has expired.
        """
        ...

    async def load(self, slot: int) -> Sequence[Record]:
        """Return all records of the slot in write order."""
        ...

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        """
        Append records in the order of the calls. The future completes once all are durable; it fails with SlotLost if
        the epoch is old, and with StoreError if the outcome is unknown.
        """
        ...

    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        """
        Replace the batches appended before this call with the equivalent snapshot; later appends are kept.

        After an unknown outcome the log has the same state either way. Its position among the appends is that of the
        call, so a log can be compacted while others append to it.
        """
        ...

    async def close(self) -> None:
        """Finish queued work and release all resources."""
        ...


class SharedStore(Store, Protocol):
    """A store of several processes. Invariant: only processes with a valid lease own slots."""

    async def register(self, address: str) -> str:
        """Register as a new process and return its id; the slots of this store's previous process become vacant."""
        ...

    async def renew(self) -> Table:
        """
        Renew the lease, and return the live processes and slot owners. Fails with LeaseLost if the lease has expired. A
        concurrent claim may be missing from the table; the epochs show which is newer.
        """
        ...

    async def release(self, slot: int, epoch: int, new_owner: str, handover: bytes) -> None:
        """
        Release the slot, for the process `new_owner` if not empty; the next claim receives `handover`. The epoch ends:
        appends that are still queued are rejected.
        """
        ...

    async def leave(self) -> None:
        """Release all slots and deregister the process, so that others need not wait for the lease to expire."""
        ...


class LogStore(Store, Protocol):
    """A store that also holds batches of records, one row per batch."""

    def atomic(self) -> AbstractContextManager[None]:
        """
        Write all appends of the `with` block in one transaction, or none: if one is rejected, all are. The block must
        not await. After an exception nothing is written, and the slots must be claimed again.
        """
        ...

    def append_rows(self, epoch: int, rows: Sequence[Row], *, flush: bool) -> "asyncio.Future[None]":
        """
        Append rows, ordered with the calls of `append`. The future completes once the rows are in the file, with
        `flush` once they are on disk. Fails as `append` does; the epoch is that of LOG_SLOT.
        """
        ...

    def rows_waiting_bytes(self) -> int:
        """Return the bytes of payloads that are not written yet; the caller bounds them."""
        ...

    def drop_rows(self, log_id: int, before_offset: int | None) -> "asyncio.Future[int]":
        """
        Delete the rows of a log that end before the offset, or all, and return their bytes (see `stored_bytes`).

        Deletion runs in steps between other writes. A crash may leave rows behind, so call it again after a restart.
        Rejected while LOG_SLOT must be claimed again.
        """
        ...

    def rewrite_rows(self, log_id: int, changes: Sequence[Change]) -> "asyncio.Future[int]":
        """
        Replace or delete rows in one transaction, and return the bytes that this frees (see `stored_bytes`).

        Rows that are gone meanwhile stay gone. Rejected while LOG_SLOT must be claimed again.
        """
        ...

    def headers(self) -> AsyncIterator[Sequence[tuple[int, Header]]]:
        """Yield all headers with their log ids in chunks, ordered by log id and offset."""
        ...

    async def sizes(self) -> Mapping[int, int]:
        """Return the bytes of each log that has rows, see `stored_bytes`."""
        ...

    async def read(self, log_id: int, offset: int, until: int, max_bytes: int) -> Sequence[Row]:
        """
        Return rows from the one that contains the offset, or the next one, up to the last that begins before `until`:
        as many as fit into `max_bytes`, and at least one.
        """
        ...

    async def first_at(self, log_id: int, timestamp_ms: int) -> Header | None:
        """Return the first batch whose maximum timestamp is at least this one; None: no such batch."""
        ...

    async def oldest(self, log_id: int, count: int) -> Sequence[Oldest]:
        """Return the first `count` batches of a log."""
        ...

    async def size(self, log_id: int) -> int:
        """Return the total payload bytes of a log; before compaction, if it is compacted."""
        ...

    async def size_between(self, log_id: int, offset: int, until: int) -> int:
        """Return the payload bytes of the rows that begin from one offset up to another."""
        ...
