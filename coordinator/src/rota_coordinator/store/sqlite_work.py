"""Work items in the queue of the embedded store's writer."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from rota_coordinator.core.log.batch import Row
from rota_coordinator.store.appends import Append
from rota_coordinator.store.port import LOG_SLOT

# About how many pages a batch or a row takes beside those that are full of it.
PAGES_EACH = 1
PAGE_BYTES = 4_096
# One commit takes no more than this, so that the WAL stays short.
COMMIT_BYTES = 16 * 1024 * 1024


class AppendRows(NamedTuple):
    """Rows of the embedded log."""

    epoch: int
    rows: Sequence[Row]
    flush: bool
    done: "asyncio.Future[Any]"
    bytes: int
    slot: int = LOG_SLOT


Part = Append | AppendRows


class AtomicWrite(NamedTuple):
    """Appends that are written together, or not at all."""

    parts: Sequence[Part]
    # Why they are not to be written; empty if they are.
    abort_reason: str


class Drop(NamedTuple):
    """Rows to be deleted, piece by piece."""

    log_id: int
    before_offset: int | None
    done: "asyncio.Future[Any]"
    begun: bool = False
    # Of what is deleted already.
    freed_bytes: int = 0


class Shrink(NamedTuple):
    """Room to be given back, piece by piece."""


class Job(NamedTuple):
    """Anything else, in its turn."""

    work: Callable[[apsw.Connection], Any]
    done: "asyncio.Future[Any]"


Write = Append | AppendRows | AtomicWrite
Other = Drop | Shrink | Job


def parts_of(write: Write) -> Sequence[Part]:
    """Return the parts that are written together."""
    return write.parts if isinstance(write, AtomicWrite) else (write,)


def bytes_of(write: Write) -> int:
    """About how much it is."""
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
