"""The port of a store. The records of a slot form one log; one process at a time may append to it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from rota_coordinator.core.log.batch import Header, Row
from rota_coordinator.core.log.retention import Oldest
from rota_coordinator.core.slots.table import SLOTS, Table
from rota_proto.coordinator.v1.records_pb2 import Record

# The embedded log's events are a log behind those of the slots, and its rows belong to it.
LOG_SLOT = SLOTS
# A lease that seems to be longer shows that the database's clock was set back (`store.postgres`).
LEASE_MS_MAX = 60_000


class StoreError(Exception):
    """The store could not do what was asked. Whether an append took place is then unknown."""


class DamagedBatch(StoreError):
    """A batch is not what was written; `row` is how it lies in the file, where its header is intact."""

    def __init__(self, message: str, row: Row | None = None) -> None:
        super().__init__(message)
        self.row = row


class SlotLost(StoreError):
    """Another process claimed the slot later: nothing was appended, and nothing will be under this epoch."""


class StoreTakenOver(SlotLost):
    """Another process writes a store that one process at a time may write: this one writes nothing more, anywhere."""


class LeaseLost(StoreError):
    """The lease of this process expired; other processes may own its slots."""


class Claim(NamedTuple):
    """A slot that is owned from now on."""

    # To append with.
    epoch: int
    # What the last owner handed over with it; empty when there was none, or when it died.
    handover: bytes


class Store(Protocol):
    """A durable log for each slot."""

    async def claim(self, slot: int) -> Claim:
        """
        Own the slot from now on, and fence its previous owner. Fails with SlotLost when another process owns it, with
        LeaseLost when the lease of this process has expired.
        """
        ...

    async def load(self, slot: int) -> Sequence[Record]:
        """All records of the slot, in the order of writing."""
        ...

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        """
        Append records, in the order of the calls. Done once all are durable; fails with SlotLost when the epoch is
        old, with StoreError when the outcome is unknown.
        """
        ...

    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        """
        Replace the batches appended before this call by the snapshot, which has the same state; later appends stay.

        After an unknown outcome the log has the same state either way. Its position among the appends is that of the
        call, so a log can be compacted while others append to it.
        """
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


class SharedStore(Store, Protocol):
    """A store that several processes use. Each is alive while it renews its lease; only the living own slots."""

    async def register(self, address: str) -> str:
        """Be alive from now on, as a new process; its id. What this store's last process owned is vacant."""
        ...

    async def renew(self) -> Table:
        """
        Stay alive for one lease more; who is, and who owns what. Fails with LeaseLost when it was too late. A claim
        that ended meanwhile may be missing; the epochs tell which is newer.
        """
        ...

    async def release(self, slot: int, epoch: int, new_owner: str, handover: bytes) -> None:
        """
        Give the slot up, for the process `new_owner` if it is not empty; the next claim gets the parcel. Ends the epoch:
        what is still on its way to the log is refused.
        """
        ...

    async def leave(self) -> None:
        """Own nothing and be gone, without waiting for the end of the lease."""
        ...


class LogStore(Store, Protocol):
    """A store that keeps batches of records too, each as a row."""

    def atomic(self) -> AbstractContextManager[None]:
        """
        Write all appends inside in one transaction, or none: if one part is refused, all are. No await inside. After
        an exception inside nothing is written, and the slots must be claimed again.
        """
        ...

    def append_rows(self, epoch: int, rows: Sequence[Row], *, flush: bool) -> "asyncio.Future[None]":
        """
        Put the rows down, in the order of the calls, those of `append` among them. Done once they are in the file,
        with `flush` once they are on the disk. Fails as `append` does; the epoch is that of LOG_SLOT.
        """
        ...

    def rows_waiting_bytes(self) -> int:
        """Return the bytes of payloads that are not written yet; the caller bounds them."""
        ...

    def drop_rows(self, log_id: int, before_offset: int | None) -> "asyncio.Future[int]":
        """
        Delete the rows of a log that end before the offset, or all; their bytes, see `stored_bytes`. Piece by piece, between what others write; a
        crash may leave some of them, and then it is to be called again. Refused while LOG_SLOT is to be claimed anew.
        """
        ...

    def headers(self) -> AsyncIterator[Sequence[tuple[int, Header]]]:
        """All headers with their log's number, by log and offset, in pieces."""
        ...

    async def sizes(self) -> Mapping[int, int]:
        """The bytes of each log that has rows, see `stored_bytes`."""
        ...

    async def read(self, log_id: int, offset: int, until: int, max_bytes: int) -> Sequence[Row]:
        """
        Rows from the one that contains the offset, or the next one, up to the last that begins before `until`: as
        many as fit into the bytes, and one at least.
        """
        ...

    async def first_at(self, log_id: int, timestamp_ms: int) -> Header | None:
        """The first batch of which the greatest timestamp is not below this one."""
        ...

    async def oldest(self, log_id: int, count: int) -> Sequence[Oldest]:
        """The first batches of a log."""
        ...

    async def size(self, log_id: int) -> int:
        """Return the total payload bytes of a log."""
        ...
