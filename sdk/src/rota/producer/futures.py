"""
Futures that `send` returns: partition, offset and timestamp of a record once it is sent.

A future refers to a batch and an index in it. Threads wait for a `SendFuture`; in asyncio an `AsyncSendFuture` is awaited.
Those of records in a slab (`slabs.py`) have no index until the slab is closed, which is before its batch is sent.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Self

from rota import errors
from rota.producer.batches import NO_OFFSET, Outcome
from rota.records import RecordMetadata

NO_INDEX = -1

log = logging.getLogger("rota.producer")


def metadata_of(batch: Outcome, index: int) -> RecordMetadata:
    """Return partition, offset and timestamp of a sent record."""
    offset = batch.base_offset if batch.base_offset < 0 else batch.base_offset + index
    return RecordMetadata(batch.topic, batch.partition, offset, batch.timestamps_ms[index])


def outcome(batch: Outcome, index: int) -> RecordMetadata:
    """Return the metadata of a record of a complete batch; raise the error if it was not sent."""
    if batch.error is not None:
        # The records of a batch share their error: drop the traceback of an earlier `raise`.
        raise batch.error.with_traceback(None)
    return metadata_of(batch, index)


class SendFuture:
    """
    The outcome of one `send`, for threads.

    >>> metadata = producer.send("orders", b"value").result(timeout=10)    # doctest: +SKIP
    """

    __slots__ = ("batch", "index")

    def __init__(self, batch: Outcome, index: int) -> None:
        """`batch` and `index` are for the producer: the batch with the record, and the record's index there."""
        self.batch = batch
        self.index = index

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self.batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's metadata; raise its error, or TimedOut after `timeout` seconds."""
        self._wait(timeout)
        return outcome(self.batch, self.index)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Return `result`, under the name of Java's future and of kafka-python's."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> errors.RotaError | None:
        """Return the error if the record was not sent; None if it was."""
        self._wait(timeout)
        return self.batch.error

    def add_done_callback(self, callback: Callable[["SendFuture"], object]) -> None:
        """Call back with this future once it is done, from the producer's thread: it must not block there."""
        self.batch.when_done(lambda batch: call_guarded(callback, self))

    def add_callback(self, callback: Callable[[RecordMetadata], object]) -> Self:
        """Call back with the record's metadata if it is sent, from the producer's thread, as kafka-python's future."""
        self.add_done_callback(lambda done: None if done.exception() else callback(done.result()))
        return self

    def add_errback(self, callback: Callable[[errors.RotaError], object]) -> Self:
        """Call back with the error if the record is not sent, from the producer's thread, as kafka-python's future."""
        self.add_done_callback(lambda done: callback(error) if (error := done.exception()) else None)
        return self

    def _wait(self, timeout: float | None) -> None:
        if not self.batch.wait(timeout):
            raise errors.TimedOut(
                f"the record for {self.batch.topic} is not sent after {timeout} s: wait longer, or "
                "check the server"
            )


class SlabFuture(SendFuture):
    """The outcome of a record in a slab, which sets both fields itself. Invariant: it has an index once `batch` is sent."""

    __slots__ = ()

    # Without the call of a Python function, which would take as long as all the rest.
    __init__ = object.__init__


class AsyncSendFuture:
    """
    The outcome of one `send`, to be awaited.

    >>> future = await producer.send("orders", b"value")    # doctest: +SKIP
    >>> metadata = await future                             # doctest: +SKIP
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Outcome, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._batch.done

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from completion(self._batch).__await__()
        return outcome(self._batch, self._index)

    def add_done_callback(self, callback: Callable[["AsyncSendFuture"], object]) -> None:
        """Call back with this future once it is done."""
        self._batch.when_done(lambda batch: call_guarded(callback, self))


class SentMany:
    """The outcomes of one `send_many`, in the order of its values."""

    __slots__ = ("_count", "_parts")

    def __init__(self, count: int, parts: Sequence[tuple[Outcome, int, Sequence[int]]]) -> None:
        """Parts are tuples: a batch, the index of the first record in it, and the records' positions in the input."""
        self._count = count
        self._parts = parts

    def __len__(self) -> int:
        return self._count

    def done(self) -> bool:
        """Return whether all outcomes are known."""
        return all(batch.done for batch, _, _ in self._parts)

    def batches(self) -> Iterator[Outcome]:
        """The batches that hold the records."""
        return (batch for batch, _, _ in self._parts)

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Return the metadata of all records; raise the first error, or TimedOut after `timeout` seconds for each batch."""
        for batch in self.batches():
            SendFuture(batch, 0).exception(timeout)
        return self._collect()

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        for batch in self.batches():
            yield from completion(batch).__await__()
        return self._collect()

    def _collect(self) -> list[RecordMetadata]:
        found = [RecordMetadata("", -1, NO_OFFSET, -1)] * self._count
        for batch, first, positions in self._parts:
            for index, position in enumerate(positions, first):
                found[position] = outcome(batch, index)
        return found


def completion(batch: Outcome) -> asyncio.Future[None]:
    """Return a future of this loop that is done when the batch is, whichever thread completes it."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    if batch.done:
        waiting.set_result(None)
    else:
        batch.when_done(lambda _: _wake(loop, waiting))
    return waiting


def _wake(loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[None]) -> None:
    # A loop that was closed meanwhile has no waiting task.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, waiting)


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def call_guarded(callback: Callable[..., object], *given: object) -> None:
    """Call a callback of the application; log what it raises, as no caller could handle it."""
    try:
        callback(*given)
    except Exception:
        log.exception("a callback raised; the record itself is not affected")
