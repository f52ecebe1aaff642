"""Work items in the queue of the embedded store's writer."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from rota_coordinator.core.log.batch import Row
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.store.appends import Append
from rota_coordinator.store.port import LOG_SLOT

# Approximate number of pages of a batch or a row, in addition to those that it fills.
PAGES_EACH = 1
PAGE_BYTES = 4_096
# Maximum bytes of one commit, which keeps the WAL short.
COMMIT_BYTES = 16 * 1024 * 1024


class AppendRows(NamedTuple):
    """An append of rows to the embedded log."""

    epoch: int
    rows: Sequence[Row]
    flush: bool
    done: "asyncio.Future[Any]"
    bytes: int
    slot: int = LOG_SLOT


Part = Append | AppendRows


class AtomicWrite(NamedTuple):
    """Appends that are written all or none."""

    parts: Sequence[Part]
    # Reason for which they must not be written; empty: write them.
    abort_reason: str


class Drop(NamedTuple):
    """Deletion of rows, in steps."""

    log_id: int
    before_offset: int | None
    done: "asyncio.Future[Any]"
    begun: bool = False
    # Bytes of the rows that earlier steps deleted.
    freed_bytes: int = 0


class Rewrite(NamedTuple):
    """Replacement and deletion of rows by log compaction, in one transaction."""

    log_id: int
    changes: Sequence[Change]
    done: "asyncio.Future[Any]"


class Shrink(NamedTuple):
    """Return of free pages to the file system, in steps."""


class Job(NamedTuple):
    """Any other work on the writer's connection, in queue order."""

    work: Callable[[apsw.Connection], Any]
    done: "asyncio.Future[Any]"


Write = Append | AppendRows | AtomicWrite
Other = Drop | Rewrite | Shrink | Job


def parts_of(write: Write) -> Sequence[Part]:
    """Return the parts that are written together."""
    return write.parts if isinstance(write, AtomicWrite) else (write,)


def bytes_of(write: Write) -> int:
    """Return the approximate bytes of a write."""
    if isinstance(write, Append):
        return len(write.data)
    return sum(len(part.data) if isinstance(part, Append) else part.bytes for part in parts_of(write))


def work_items(waiting: Sequence[Write | Other | None]) -> Iterator[list[Write] | Other | None]:
    """Yield the queued work in order; consecutive writes become one commit, up to its size limit."""
    commit: list[Write] = []
    size = 0
    for work in waiting:
        if isinstance(work, Write):
            size += bytes_of(work)
            if size > COMMIT_BYTES and commit:
                yield commit
                commit, size = [], bytes_of(work)
            commit.append(work)
            continue
        if commit:
            yield commit
            commit, size = [], 0
        yield work
    if commit:
        yield commit
