"""
Buffers records until they are sent: one queue of batches for each partition, in one bounded buffer.

Any thread may `append`; the sender takes, releases and completes. Threads that send record after record append to slabs (`slabs.py`),
which are closed here. This module uses neither the network nor a clock of its own.
"""

import random
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, repeat

from rota import errors
from rota.clocks import Clocks
from rota.producer.batches import RECORD_BYTES, Batch, Outcome
from rota.producer.futures import NO_INDEX, SlabFuture
from rota.producer.partitioner import hash_of
from rota.producer.slabs import FIELDS, Slab, SlabName
from rota.records import Headers

# The log remembers the last five batches of a producer and partition: more in one request could not be told from new
# ones when it has to be sent again.
BATCHES_PER_PARTITION_MAX = 5
# A slab has room for records that are this much longer than the newest ones of its batch, of which so many are measured,
SLAB_MARGIN = 1.25
SLAB_SAMPLE = 16
# and for so many times as many as the batch has: what an idle partition reserves is in proportion to what it uses.
SLAB_GROWTH = 4
# A smaller one would cost more than it saves.
SLAB_RECORDS_MIN = 8


class BufferFull(Exception):
    """The buffer has no room for the record."""


class UnknownTopic(Exception):
    """The number of the topic's partitions is unknown so far."""


@dataclass(slots=True, eq=False)
class Queue:
    """The batches of one partition. Invariant: a muted queue has a request in flight, and no batch is taken from it."""

    topic: str
    partition: int
    batches: deque[Batch] = field(default_factory=deque)
    # The newest batch, while records may be added to it.
    open: Batch | None = None
    # Of the open batch, while threads may append to it.
    slab: Slab | None = None
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes and times in seconds that bound the buffer."""

    batch_bytes: int
    record_bytes: int
    buffer_bytes: int
    request_bytes: int
    linger_s: float
    delivery_timeout_s: float


class Accumulator:
    """
    The unsent and in-flight records of a producer. Invariant: they fit into `buffer_bytes`, with what slabs have reserved.

    A batch with an open slab counts the slab's reservation in its size, and the records in the slab are not in its columns.
    """

    def __init__(self, limits: Limits, clocks: Clocks, wake: Callable[[], None]) -> None:
        """`wake` is called, from any thread, when the sender may have something new to do."""
        self._limits = limits
        # Read for every record.
        self._batch_bytes = limits.batch_bytes
        self._buffer_bytes = limits.buffer_bytes
        self._wall_ms = clocks.wall_ms
        self._clocks = clocks
        self._wake = wake
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, int], Queue] = {}
        self._waiting: dict[Queue, None] = {}
        # Current partition of each topic for records without a key.
        self._sticky: dict[str, Queue] = {}
        self._used = 0
        self._incomplete: dict[Batch, None] = {}
        self._room_callbacks: list[Callable[[], None]] = []
        self._refusal: errors.RotaError | None = None
        self.partitions: dict[str, int] = {}
        # Open slabs; threads read it without the lock.
        self.slabs: dict[SlabName, Slab] = {}
        self.on_batch: Callable[[Outcome], None] | None = None

    @property
    def refusal(self) -> errors.RotaError | None:
        """The error that each further record gets; None while records are accepted."""
        return self._refusal

    @refusal.setter
    def refusal(self, refusal: errors.RotaError | None) -> None:
        self._refusal = refusal
        with self._lock:
            self._close_slabs()

    # Called by the application's threads

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> tuple[Batch, int]:
        """Append a record; return its batch and its index there. Raises BufferFull or UnknownTopic."""
        size = RECORD_BYTES + (0 if value is None else len(value)) + (0 if key is None else len(key))
        if headers:
            size += sum(3 * len(name) + len(content or b"") + RECORD_BYTES for name, content in headers)
        if timestamp_ms is None:
            timestamp_ms = self._wall_ms()
        with self._lock:
            # Fast path of most records: into the open batch of a known partition.
            if partition is not None:
                queue = self._queues.get((topic, partition))
            elif key is None:
                queue = self._sticky.get(topic)
            else:
                count = self.partitions.get(topic)
                queue = self._queues.get((topic, hash_of(key) % count)) if count else None
            batch = None if queue is None or queue.slab is not None else queue.open
            if (
                batch is None
                or batch.size + size > self._batch_bytes
                or self._used + size > self._buffer_bytes
                or self._refusal is not None
            ):
                batch = self._batch(topic, partition, key, size)
            index = len(batch.values)
            batch.values.append(value)
            batch.keys.append(key)
            batch.timestamps_ms.append(timestamp_ms)
            if headers:
                batch.headers[index] = tuple(headers)
            batch.size += size
            self._used += size
        if index == 0:
            self._wake()
        return batch, index

    def append_many(
        self,
        topic: str,
        partition: int | None,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
    ) -> Sequence[tuple[Batch, int, int]]:
        """
        Append as many records as fit, in order; return tuples of batch, index of the first, number.

        Raises BufferFull when none fits. Without a partition each batch goes to another one.
        """
        ends = list(accumulate(RECORD_BYTES + len(value or b"") for value in values))
        if keys is not None:
            key_ends = accumulate(len(key or b"") for key in keys)
            ends = [end + more for end, more in zip(ends, key_ends, strict=True)]
        now_ms = self._wall_ms()
        parts: list[tuple[Batch, int, int]] = []
        done = taken = 0
        with self._lock, suppress(BufferFull):
            self._has_room(ends[-1] if ends else 0)
            while done < len(values):
                batch = self._batch(topic, partition, None, ends[done] - taken)
                room = min(self._batch_bytes - batch.size, self._buffer_bytes - self._used)
                # A record larger than a batch gets a batch of its own.
                stop = max(bisect_right(ends, taken + room, lo=done), done + 1)
                parts.append((batch, len(batch.values), stop - done))
                batch.values += values[done:stop]
                batch.keys += repeat(None, stop - done) if keys is None else keys[done:stop]
                batch.timestamps_ms += repeat(now_ms, stop - done)
                batch.size += ends[stop - 1] - taken
                self._used += ends[stop - 1] - taken
                done, taken = stop, ends[stop - 1]
        if not parts:
            raise BufferFull
        self._wake()
        return parts

    def on_room(self, callback: Callable[[], None]) -> None:
        """Call back once room is released; until then batches do not linger."""
        with self._lock:
            if self._used:
                self._room_callbacks.append(callback)
                callback = self._wake
        callback()

    def incomplete(self, *, close: bool) -> tuple[Batch, ...]:
        """Return all incomplete batches; with `close` they are sent without lingering."""
        with self._lock:
            if close:
                for queue in self._queues.values():
                    self._close(queue)
            incomplete = tuple(self._incomplete)
        if close:
            self._wake()
        return incomplete

    def _batch(self, topic: str, partition: int | None, key: bytes | None, size: int) -> Batch:
        """Return the batch for a record of this size."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        if size > self._limits.record_bytes:
            raise errors.RecordTooLarge(f"a record of {size:,} bytes for {topic} exceeds max_request_size")
        queue = self._find(topic, partition, key)
        if not self._has_room(size):
            raise BufferFull
        self._close_slab(queue)
        while queue.open is not None:
            if queue.open.size + size <= self._batch_bytes:
                return queue.open
            self._close(queue)
            # A record without a key goes to another partition now.
            queue = self._find(topic, partition, key)
            self._close_slab(queue)
        return self._new(queue)

    def _has_room(self, size: int) -> bool:
        """Return whether the buffer has room, after taking back what slabs have reserved if it has none."""
        if self._used + size > self._buffer_bytes:
            self._close_slabs()
        return not self._used or self._used + size <= self._buffer_bytes

    def _find(self, topic: str, partition: int | None, key: bytes | None) -> Queue:
        count = self.partitions.get(topic)
        if count is None:
            raise UnknownTopic
        if partition is None and key is None:
            sticky = self._sticky.get(topic)
            if sticky is None:
                sticky = self._sticky[topic] = self._queue(topic, random.randrange(count))
            return sticky
        if partition is None:
            partition = hash_of(key or b"") % count
        elif not 0 <= partition < count:
            raise errors.UnknownTopicOrPartition(f"{topic}[{partition}], the topic has {count} partitions")
        return self._queue(topic, partition)

    def _queue(self, topic: str, partition: int) -> Queue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = Queue(topic, partition)
        return queue

    def _new(self, queue: Queue) -> Batch:
        batch = Batch(queue.topic, queue.partition, self._clocks.monotonic_s())
        if self.on_batch is not None:
            batch.when_done(self.on_batch)
        queue.open = batch
        queue.batches.append(batch)
        self._incomplete[batch] = None
        if not queue.muted:
            self._waiting[queue] = None
        return batch

    def _close(self, queue: Queue) -> None:
        self._close_slab(queue)
        queue.open = None
        # The next records without a key go to another partition, so that all partitions get their share.
        if self._sticky.get(queue.topic) is queue:
            del self._sticky[queue.topic]

    # Slabs

    def open_slab(self, batch: Batch) -> None:
        """Let threads append records like the newest ones to a batch, if it is open and has room for more than a few."""
        with self._lock:
            queue = self._queues[batch.topic, batch.partition]
            if queue.open is not batch or queue.slab is not None or self._refusal is not None:
                return
            newest = zip(batch.values[-SLAB_SAMPLE:], batch.keys[-SLAB_SAMPLE:], strict=True)
            size_max = int(SLAB_MARGIN * max(len(value or b"") + len(key or b"") for value, key in newest))
            room = min(self._batch_bytes - batch.size, self._buffer_bytes - self._used)
            count = min(room // (size_max + RECORD_BYTES), SLAB_GROWTH * len(batch.values))
            if count < SLAB_RECORDS_MIN:
                return
            slab = Slab(batch, size_max, count * (size_max + RECORD_BYTES), count * FIELDS)
            batch.size += slab.reserved
            self._used += slab.reserved
            queue.slab = self.slabs[queue.topic, queue.partition] = slab
            if self._sticky.get(queue.topic) is queue:
                self.slabs[queue.topic] = slab

    def settle(self, slab: Slab, future: SlabFuture) -> bool:
        """Close a slab that is full or closed; return whether the record of this future is in its batch."""
        with self._lock:
            queue = self._queues[slab.batch.topic, slab.batch.partition]
            if queue.slab is slab:
                self._close_slab(queue)
        return future.index != NO_INDEX

    def _close_slabs(self) -> None:
        for slab in tuple(self.slabs.values()):
            self._close_slab(self._queues[slab.batch.topic, slab.batch.partition])

    def _close_slab(self, queue: Queue) -> None:
        """Move the records of a partition's slab to its batch, and free what they leave of the reservation."""
        slab = queue.slab
        if slab is None:
            return
        batch, added = slab.batch, slab.close()
        keys_bytes = sum(map(len, filter(None, added.keys)))
        spare = slab.reserved - RECORD_BYTES * len(added.values) - sum(map(len, added.values)) - keys_bytes
        for index, future in enumerate(added.futures, len(batch.values)):
            future.index = index
        # No call in between: an exception of a signal comes before all of this, and then it is done again, or after it.
        batch.values += added.values
        batch.keys += added.keys
        batch.timestamps_ms += added.timestamps_ms
        batch.size -= spare
        self._used -= spare
        queue.slab = None
        for name in ((queue.topic, queue.partition), queue.topic):
            if self.slabs.get(name) is slab:
                del self.slabs[name]

    # Called by the sender

    def take(self, now_s: float) -> tuple[list[tuple[Queue, list[Batch]]], float | None]:
        """
        Take the batches of one request, and the time of the next ones if there are none.

        The taken queues are muted until `release`.
        """
        taken: list[tuple[Queue, list[Batch]]] = []
        room = self._limits.request_bytes
        next_s: float | None = None
        with self._lock:
            for queue in list(self._waiting):
                ready_s = self._ready_at(queue)
                if ready_s > now_s:
                    next_s = ready_s if next_s is None else min(next_s, ready_s)
                    continue
                batches = self._take(queue, room)
                room -= sum(batch.size for batch in batches)
                queue.muted = True
                del self._waiting[queue]
                taken.append((queue, batches))
                if room <= 0:
                    break
        return taken, next_s

    def _ready_at(self, queue: Queue) -> float:
        first = queue.batches[0]
        if first is not queue.open or self._room_callbacks:
            return 0.0
        return first.created_s + self._limits.linger_s

    def _take(self, queue: Queue, room: int) -> list[Batch]:
        self._close_slab(queue)
        batches = [queue.batches.popleft()]
        room -= batches[0].size
        while queue.batches and len(batches) < BATCHES_PER_PARTITION_MAX and queue.batches[0].size <= room:
            room -= queue.batches[0].size
            batches.append(queue.batches.popleft())
        if batches[-1] is queue.open:
            self._close(queue)
        return batches

    def release(self, queues: Iterable[Queue]) -> None:
        """Unmute queues whose request has completed."""
        with self._lock:
            for queue in queues:
                queue.muted = False
                if queue.batches:
                    self._waiting[queue] = None

    def complete(self, batch: Batch, base_offset: int, error: errors.RotaError | None = None) -> None:
        """Complete a batch: free its room, then call its callbacks."""
        with self._lock:
            if batch not in self._incomplete:
                return
            del self._incomplete[batch]
            self._used -= batch.size
            callbacks, self._room_callbacks = self._room_callbacks, []
        batch.complete(base_offset, error)
        for callback in callbacks:
            callback()

    def expired(self, now_s: float) -> list[Batch]:
        """Remove and return the unsent batches whose delivery timeout is over."""
        return self._drop(lambda batch: batch.created_s + self._limits.delivery_timeout_s <= now_s)

    def drop_all(self) -> list[Batch]:
        """Remove and return all batches that no request has taken."""
        return self._drop(lambda batch: True)

    def _drop(self, which: Callable[[Batch], bool]) -> list[Batch]:
        dropped: list[Batch] = []
        with self._lock:
            for queue in self._queues.values():
                while queue.batches and which(queue.batches[0]):
                    dropped.append(queue.batches.popleft())
                if dropped and dropped[-1] is queue.open:
                    self._close(queue)
                if not queue.batches:
                    self._waiting.pop(queue, None)
        return dropped
