"""
The writer of the embedded store: one thread with the only connection that writes and checkpoints.

A single connection avoids a WAL corruption by concurrent writers in many SQLite versions. All waiting appends are
committed in one transaction with one flush, in queue order.
"""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from rota_coordinator.core.log.batch import Row
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.store import sqlite_fence
from rota_coordinator.store.appends import Append, Outcome, settle, settle_all, slot_lost
from rota_coordinator.store.port import LOG_SLOT, SlotLost, StoreError, StoreTakenOver
from rota_coordinator.store.sqlite_file import DatabaseFile
from rota_coordinator.store.sqlite_rows import RowWriter
from rota_coordinator.store.sqlite_work import (
    PAGE_BYTES,
    PAGES_EACH,
    AppendRows,
    AtomicWrite,
    Drop,
    Job,
    Other,
    Part,
    Rewrite,
    Shrink,
    Write,
    bytes_of,
    parts_of,
    work_items,
)

# Free pages are kept for reuse until they exceed this number (16 MB) and a quarter of the file.
SHRINK_ABOVE_PAGES = 4_096
SHRINK_ABOVE_SHARE = 4
SHRUNK_AT_ONCE = 256
# Approximate number of pages that one step of a drop changes.
DROPPED_PAGES = 64


class Owned(NamedTuple):
    """A slot, and the epoch at which its owner claims to hold it."""

    slot: int
    epoch: int


@dataclass(slots=True)
class Commit:
    """The appends that one transaction writes."""

    parts: list[Part] = field(default_factory=list)
    batches: dict[int, list[bytes]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    flush: bool = False

    def add(self, part: Part) -> None:
        """Add an append to the transaction."""
        self.parts.append(part)
        if isinstance(part, Append):
            self.batches.setdefault(part.slot, []).append(part.data)
            self.flush = True
        else:
            self.rows += part.rows
            self.flush = self.flush or part.flush


class Writer:
    """The writer's thread and its queue. Invariant: work runs in the order of `put`; only steps are requeued."""

    def __init__(self, path: Path, file: DatabaseFile) -> None:
        self._path = path
        self._file = file  # used by the writer's thread only
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Write | Other | None] = []  # None: close
        self._closed = False
        self._waiting_bytes = 0
        # Slots with a failed append. Later appends may depend on it and are rejected until the next claim.
        self._broken: set[int] = set()
        connection = file.connection(flush=True)
        # Epochs in the file as known to this process; a transaction that finds another epoch writes nothing.
        self._epochs: dict[int, int] = epochs_of(connection)
        # Set once a transaction finds an epoch that this process did not raise: another process has taken the file
        # over.
        self._taken: StoreTakenOver | None = None
        self._rows = RowWriter()
        # True while a shrink step is queued.
        self._shrinking = False
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)
        self._thread.start()

    def put(self, work: Write | Other | None) -> None:
        """Queue a work item; None closes the writer."""
        with self._arrived:
            if self._closed:
                self._refuse(work)
                return
            self._closed = work is None
            self._waiting.append(work)
            self._waiting_bytes += row_bytes(work)
            self._arrived.notify()

    def _refuse(self, work: Write | Other | None) -> None:
        """Reject work after the writer was closed, in the caller's event loop."""
        error = StoreError(f"{self._path} is closed")
        if isinstance(work, Write):
            settle_all((part.done, None, error) for part in parts_of(work))
        elif isinstance(work, Drop | Rewrite | Job):
            settle(work.done, None, error)

    def waiting_bytes(self) -> int:
        """Return the bytes of rows that are not written yet."""
        return self._waiting_bytes

    def join(self) -> None:
        """Wait for the thread to end, after `put(None)`."""
        self._thread.join()

    def check(self, connection: apsw.Connection, slot: int, epoch: int) -> None:
        """
        Raise unless the slot is at this epoch, in memory and in the file, without failed appends; called in
        transactions.
        """
        if slot in self._broken or self._epochs.get(slot) != epoch:
            raise slot_lost(slot, epoch)
        sqlite_fence.check(connection, str(self._path), {slot: epoch})

    def claim(self, connection: apsw.Connection, slot: int) -> int:
        """Raise the epoch of a slot and return it; called in a job. Appends to the slot are accepted again."""
        # Until the claim is known to be written.
        self._broken.add(slot)
        known = self._epochs.pop(slot, None)
        self._epochs[slot] = sqlite_fence.claim(connection, str(self._path), slot, known)
        self._broken.discard(slot)
        return self._epochs[slot]

    def _run(self) -> None:
        """Run work items in order; consecutive waiting writes form one transaction."""
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._waiting)
                waiting, self._waiting = self._waiting, []
            for turn in work_items(waiting):
                if turn is None:
                    self._file.close()
                    return
                self._do(turn)

    def _do(self, turn: list[Write] | Other) -> None:
        match turn:
            case list():
                self._commit(turn)
            case Drop():
                self._drop(turn)
            case Rewrite():
                self._rewrite(turn)
            case Shrink():
                self._go_on_shrinking()
            case Job():
                self._finish(turn)

    def _requeue(self, work: Drop | Shrink) -> None:
        """Queue the next step after the work that waits now; after closing it stays unfinished."""
        with self._arrived:
            if self._closed:
                self._loop.call_soon_threadsafe(self._refuse, work)
            else:
                self._waiting.append(work)

    def _commit(self, writes: Sequence[Write]) -> None:
        """Write the appends with one flush; rejected ones are left out, and the others are written."""
        commit = Commit()
        outcomes: list[Outcome] = []
        for write in writes:
            outcomes += self._admit(write, commit)
        error = self._write(commit) if commit.parts else None
        if error is not None:
            self._rows.forget()
            self._broken.update(part.slot for part in commit.parts)
        outcomes += [(part.done, None, error) for part in commit.parts]
        with self._arrived:
            self._waiting_bytes -= sum(map(row_bytes, writes))
        self._loop.call_soon_threadsafe(settle_all, outcomes)
        self._file.wrote(pages_of(commit))

    def _admit(self, write: Write, commit: Commit) -> list[Outcome]:
        """Add the write to the commit, or return the outcomes of its rejection."""
        parts = parts_of(write)
        losses = [self._loss(part) for part in parts]
        reason = write.abort_reason if isinstance(write, AtomicWrite) else ""
        reason = reason or next((str(loss) for loss in losses if loss is not None), "")
        if not reason:
            for part in parts:
                commit.add(part)
            return []
        outcomes: list[Outcome] = []
        for part, loss in zip(parts, losses, strict=True):
            if loss is None:
                self._broken.add(part.slot)
            left_out = StoreError(
                f"not written, because another part of the same transaction was not: {reason}"
            )
            outcomes.append((part.done, None, loss or left_out))
        return outcomes

    def _loss(self, part: Part) -> SlotLost | None:
        if self._taken is not None:
            return self._taken
        if part.slot in self._broken or self._epochs.get(part.slot) != part.epoch:
            return slot_lost(part.slot, part.epoch)
        return None

    def _write(self, commit: Commit) -> StoreError | None:
        try:
            connection = self._file.connection(flush=commit.flush)
            batches = {slot: b"".join(data) for slot, data in commit.batches.items()}
            if not commit.rows:
                sqlite_fence.append_batches(connection, str(self._path), self._epochs, batches)
                return None
            connection.execute("BEGIN IMMEDIATE")
            sqlite_fence.append_batches(connection, str(self._path), self._epochs, batches)
            if not self._rows.insert(connection, commit.rows, self._epochs[LOG_SLOT]):
                held = {LOG_SLOT: self._epochs[LOG_SLOT]}
                raise sqlite_fence.taken_over(connection, str(self._path), held)
            connection.execute("COMMIT")
        except apsw.Error as broken:
            return self._failed(broken)
        except StoreTakenOver as taken:
            return self._stop_writing(taken)
        except StoreError as broken:
            return broken
        except Exception as broken:  # noqa: BLE001  a bug; if the thread ended, all waiting work would hang
            self._file.distrust()
            return StoreError(
                f"{self._path} could not be written ({type(broken).__name__}: {broken}); please report it"
            )
        return None

    def _failed(self, error: apsw.Error) -> StoreError:
        self._file.failed(error)
        return StoreError(f"{self._path} could not be written ({error}); check the disk")

    def _stop_writing(self, taken: StoreTakenOver) -> StoreTakenOver:
        """Roll back and reject all further writes, because another coordinator writes the file."""
        self._taken = taken
        self._file.roll_back()
        return taken

    def _drop(self, drop: Drop) -> None:
        """Run one step of a drop, and queue the next one."""
        error: StoreError | None = None
        try:
            connection = self._begin_on_rows(drop.log_id, is_safe=drop.begun)
            freed_bytes = self._rows.drop(connection, drop.log_id, drop.before_offset)
            connection.execute("COMMIT")
            if freed_bytes:
                self._requeue(drop._replace(begun=True, freed_bytes=drop.freed_bytes + freed_bytes))
                return
            self._shrink()
        except (apsw.Error, StoreError) as broken:
            error = self._failure_on_rows(broken)
        finally:
            self._file.wrote(DROPPED_PAGES)
        self._loop.call_soon_threadsafe(settle, drop.done, drop.freed_bytes, error)

    def _rewrite(self, rewrite: Rewrite) -> None:
        """Replace and delete rows."""
        error: StoreError | None = None
        freed_bytes = 0
        try:
            connection = self._begin_on_rows(rewrite.log_id, is_safe=False)
            freed_bytes = self._rows.rewrite(connection, rewrite.log_id, rewrite.changes)
            connection.execute("COMMIT")
            self._shrink()
        except (apsw.Error, StoreError) as broken:
            error = self._failure_on_rows(broken)
        finally:
            self._file.wrote(pages_of_changes(rewrite.changes))
        self._loop.call_soon_threadsafe(settle, rewrite.done, freed_bytes, error)

    def _failure_on_rows(self, broken: apsw.Error | StoreError) -> StoreError:
        """Return the error of a change of stored rows, after what it asks for: a rollback, or the end of all writing."""
        if isinstance(broken, apsw.Error):
            return self._failed(broken)
        return self._stop_writing(broken) if isinstance(broken, StoreTakenOver) else broken

    def _begin_on_rows(self, log_id: int, *, is_safe: bool) -> apsw.Connection:
        """
        Begin a transaction that changes stored rows, if this process owns the log; `is_safe` says that no failed append can
        be the reason for the change.
        """
        if self._taken is not None:
            raise self._taken
        if LOG_SLOT not in self._epochs or (LOG_SLOT in self._broken and not is_safe):
            # The failed append may be the one that made these rows obsolete.
            raise StoreError(f"log {log_id} keeps its rows: slot {LOG_SLOT} must be claimed first")
        connection = self._file.connection(flush=False)
        connection.execute("BEGIN IMMEDIATE")
        sqlite_fence.check(connection, str(self._path), {LOG_SLOT: self._epochs[LOG_SLOT]})
        return connection

    def _shrink(self) -> None:
        """Return free pages to the file system, if there are many."""
        connection = self._file.connection(flush=False)
        free, pages = connection.pragma("freelist_count"), connection.pragma("page_count")
        if free <= max(SHRINK_ABOVE_PAGES, pages // SHRINK_ABOVE_SHARE):
            return
        connection.execute(f"PRAGMA incremental_vacuum({SHRUNK_AT_ONCE})").fetchall()
        self._file.wrote(SHRUNK_AT_ONCE)
        if not self._shrinking:
            self._shrinking = True
            self._requeue(Shrink())

    def _go_on_shrinking(self) -> None:
        self._shrinking = False
        try:
            self._shrink()
        except apsw.Error as broken:
            # No caller waits for it; the next drop starts it again.
            self._file.failed(broken)
        except StoreError:
            return

    def _finish(self, job: Job) -> None:
        result, error = None, None
        try:
            if self._taken is not None:
                raise self._taken
            result = job.work(self._file.connection(flush=True))
        except apsw.Error as broken:
            error = self._failed(broken)
        except StoreTakenOver as taken:
            error = self._stop_writing(taken)
        except StoreError as broken:
            error = broken
        self._loop.call_soon_threadsafe(settle, job.done, result, error)


def epochs_of(connection: apsw.Connection) -> dict[int, int]:
    """Return the epoch of each slot in the file."""
    rows: Iterable[tuple[Any, ...]] = connection.execute("SELECT slot, epoch FROM slots")
    return {int(slot): int(epoch) for slot, epoch in rows}


def row_bytes(work: Write | Other | None) -> int:
    """Return the payload bytes of the rows of a work item."""
    if isinstance(work, AppendRows | AtomicWrite):
        return sum(part.bytes for part in parts_of(work) if isinstance(part, AppendRows))
    return 0


def pages_of(commit: Commit) -> int:
    """Return the approximate number of pages that the commit wrote."""
    written = len(commit.batches) + len(commit.rows)
    return PAGES_EACH * written + sum(map(bytes_of, commit.parts)) // PAGE_BYTES


def pages_of_changes(changes: Sequence[Change]) -> int:
    """Return the approximate number of pages that a rewrite writes."""
    written = sum(len(row.payload) for _, row in changes if row is not None)
    return PAGES_EACH * len(changes) + written // PAGE_BYTES
