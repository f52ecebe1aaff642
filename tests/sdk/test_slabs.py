"""Records that are sent one by one share batches without a lock, and each is in one batch, in order, with its own offset."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from rota import errors
from rota.clocks import Clocks
from rota.producer.accumulator import Accumulator, BufferFull, Limits, Queue
from rota.producer.batches import RECORD_BYTES, Batch
from rota.producer.futures import SendFuture
from rota.producer.slab_writer import RECORDS_BEFORE, SlabWriter
from rota.records import Headers

PARTITIONS = 3
BATCH_BYTES = 2_000
BUFFER_BYTES = 20_000
VALUE = b"x" * (40 - RECORD_BYTES)
IN_SLABS = RECORDS_BEFORE + 1
THREADS, RECORDS_EACH = 4, 5_000
SWITCH_S = 1e-5


class Entries(list[Any]):
    """The entries of a slab; `appended` runs each time that a record was appended, before the writer looks at `room`."""

    def __init__(self, appended: Callable[[], None]) -> None:
        super().__init__()
        self._appended = appended

    @override
    def __iadd__(self, more: Iterable[Any]) -> Self:
        super().__iadd__(more)
        self._appended()
        return self


class Watched(Accumulator):
    """An accumulator whose slabs have such entries."""

    appended: Callable[[], None]

    @override
    def open_slab(self, batch: Batch) -> None:
        before = set(map(id, self.slabs.values()))
        super().open_slab(batch)
        for slab in self.slabs.values():
            if id(slab) not in before and not isinstance(slab.entries, Entries):
                slab.entries = Entries(self.appended)


class Writer(SlabWriter):
    """
    A writer on an accumulator of its own. Another thread may do what `meanwhile` does: it runs when a record gets its timestamp,
    before it is appended, and, on a `Watched` accumulator, after that.
    """

    accumulator_class = Accumulator

    def __init__(self, *, batch_bytes: int = BATCH_BYTES, buffer_bytes: int = BUFFER_BYTES) -> None:
        limits = Limits(batch_bytes, 1_000, buffer_bytes, 4 * BATCH_BYTES, linger_s=5, delivery_timeout_s=100)
        self.meanwhile: Callable[[], None] = lambda: None
        self._ticks = count(1)
        self.accumulator = self.accumulator_class(limits, Clocks(self._now_ms, lambda: 0.0), lambda: None)
        self.accumulator.partitions["t"] = PARTITIONS
        if isinstance(self.accumulator, Watched):
            self.accumulator.appended = self._meanwhile
        super().__init__(self.accumulator, self._now_ms)

    def _meanwhile(self) -> None:
        self.meanwhile()

    def _now_ms(self) -> int:
        self._meanwhile()
        return next(self._ticks)

    @override
    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> tuple[Batch, int]:
        return self.accumulator.append(topic, value, key, partition, timestamp_ms, headers)

    def put(
        self, value: bytes | None = VALUE, partition: int | None = 0, key: bytes | None = None
    ) -> SendFuture:
        return self.send("t", value, key, partition, None, None)


class WatchedWriter(Writer):
    """A writer whose `meanwhile` runs after a record was appended to a slab, too."""

    accumulator_class = Watched


class Log:
    """A log that takes all batches of an accumulator, and has the values by partition."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self.values: dict[int, list[bytes | None]] = {}
        self.sizes: list[int] = []

    def take(self) -> int:
        """Write and complete the batches that can be taken; return their number."""
        taken, _ = self._accumulator.take(1e9)
        for queue, batches in taken:
            self._write(queue, batches)
        self._accumulator.release(queue for queue, _ in taken)
        return len(taken)

    def _write(self, queue: Queue, batches: Sequence[Batch]) -> None:
        for batch in batches:
            written = self.values.setdefault(queue.partition, [])
            assert len(batch.values) == len(batch.keys) == len(batch.timestamps_ms)
            assert batch.size == sum(map(size_of, batch.values, batch.keys))
            self.sizes.append(batch.size)
            offset = len(written)
            written += batch.values
            self._accumulator.complete(batch, offset)

    def take_all(self) -> None:
        """Take until nothing is left."""
        self._accumulator.incomplete(close=True)
        while self.take():
            pass


def size_of(value: bytes | None, key: bytes | None = None) -> int:
    return RECORD_BYTES + len(value or b"") + len(key or b"")


def in_a_slab(writer: Writer) -> list[SendFuture]:
    """Send until the batch has a slab."""
    sent = [writer.put() for _ in range(IN_SLABS)]
    assert ("t", 0) in writer.accumulator.slabs
    return sent


def offsets(sent: Sequence[SendFuture]) -> list[int]:
    return [future.result(0).offset for future in sent]


def test_records_of_slabs_have_the_offsets_and_timestamps_of_their_order() -> None:
    writer = Writer()
    sent = [writer.put() for _ in range(40)]
    assert not any(future.done() for future in sent)

    Log(writer.accumulator).take_all()

    assert offsets(sent) == list(range(40))
    times = [future.result(0).timestamp_ms for future in sent]
    assert times == sorted(times)


def test_a_record_of_a_slab_waits_and_fails_as_any_other() -> None:
    writer = Writer()
    in_a_slab(writer)
    future = writer.put()
    found: list[SendFuture] = []
    future.add_done_callback(found.append)
    with pytest.raises(errors.TimedOut):
        future.result(0)

    for batch in writer.accumulator.drop_all():
        writer.accumulator.complete(batch, -1, errors.ProducerClosed("closed"))

    assert found == [future]
    with pytest.raises(errors.ProducerClosed):
        future.result(0)


def test_a_record_that_comes_when_its_slab_was_taken_is_in_the_next_batch() -> None:
    writer = Writer()
    sent = in_a_slab(writer)
    log = Log(writer.accumulator)

    def take() -> None:
        writer.meanwhile = lambda: None
        log.take()

    writer.meanwhile = take
    sent.append(writer.put())

    assert len(log.values[0]) == IN_SLABS
    assert not sent[-1].done()
    log.take_all()
    assert offsets(sent) == list(range(IN_SLABS + 1))


def test_a_record_whose_slab_is_taken_right_after_it_is_not_repeated() -> None:
    writer = WatchedWriter()
    sent = in_a_slab(writer)
    log = Log(writer.accumulator)
    calls = count()

    def take() -> None:
        if next(calls) == 1:
            log.take()

    writer.meanwhile = take
    sent.append(writer.put())

    assert log.values[0] == [VALUE] * (IN_SLABS + 1)
    assert offsets(sent) == list(range(IN_SLABS + 1))


def test_a_record_that_comes_when_sends_are_refused_is_refused() -> None:
    writer = Writer()
    in_a_slab(writer)

    def refuse() -> None:
        writer.accumulator.refusal = errors.ProducerClosed("closed")

    writer.meanwhile = refuse
    with pytest.raises(errors.ProducerClosed):
        writer.put()
    assert writer.accumulator.slabs == {}


def test_records_without_a_key_leave_a_partition_with_their_batch() -> None:
    writer = Writer(buffer_bytes=1_000_000)
    for _ in range(2_000):
        writer.put(partition=None)
    log = Log(writer.accumulator)
    log.take_all()
    assert sorted(log.values) == list(range(PARTITIONS))
    assert all(size == BATCH_BYTES for size in log.sizes[:-PARTITIONS])


def test_what_slabs_reserve_is_given_back_before_the_buffer_is_full() -> None:
    writer = Writer(buffer_bytes=100 * size_of(VALUE))
    for number in range(100):
        writer.put(partition=number % PARTITIONS)
    with pytest.raises(BufferFull):
        writer.put()


Action = tuple[str, int, int]
"""What to do, the partition, and the length of the value."""
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["puts", "puts", "put", "put", "keyed", "free", "bulk", "take", "close", "expire"]),
        st.sampled_from([0, 0, 0, 1]),
        st.sampled_from([20, 20, 20, 21, 30, 200]),
    ),
    max_size=40,
)


class Story:
    """Values that were sent by partition, in order, with their futures."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.log = Log(writer.accumulator)
        self.sent: dict[bytes, SendFuture] = {}
        self.many: list[bytes] = []
        self._numbers = count()

    def value(self, length: int) -> bytes:
        return b"%06d" % next(self._numbers) + b"x" * length

    def act(self, action: Action) -> None:
        """Do it, except for what the buffer has no room for."""
        what, partition, length = action
        match what:
            case "take":
                self.log.take()
            case "close":
                self.writer.accumulator.incomplete(close=True)
            case "expire":
                self.writer.accumulator.expired(0)
            case "puts":
                for _ in range(IN_SLABS):
                    self.act(("put", partition, length))
            case _:
                with suppress(BufferFull):
                    self._send(what, partition, length)

    def _send(self, what: str, partition: int, length: int) -> None:
        value = self.value(length)
        if what == "bulk":
            for _, _, number in self.writer.accumulator.append_many("t", partition, [value], None):
                assert number == 1
            self.many.append(value)
        elif what == "keyed":
            self.sent[value] = self.writer.put(value, None, b"key-%d" % partition)
        else:
            self.sent[value] = self.writer.put(value, None if what == "free" else partition)

    def check(self) -> None:
        """Every record is in the log once, at the offset that its future says."""
        self.log.take_all()
        written = [value for values in self.log.values.values() for value in values]
        assert sorted(value or b"" for value in written) == sorted([*self.sent, *self.many])
        for value, future in self.sent.items():
            found = future.result(0)
            assert self.log.values[found.partition][found.offset] == value
        assert max(self.log.sizes, default=0) <= BATCH_BYTES


@given(ACTIONS, st.lists(st.tuples(st.integers(0, 30), ACTIONS), max_size=8))
def test_whatever_happens_while_a_record_is_sent_it_is_in_one_batch(
    actions: list[Action], interruptions: list[tuple[int, list[Action]]]
) -> None:
    writer = WatchedWriter()
    story = Story(writer)
    left = iter(interruptions)
    wait, todo = next(left, (0, []))

    def meanwhile() -> None:
        nonlocal wait, todo
        wait -= 1
        if wait < 0 and todo:
            doing, (wait, todo) = todo, next(left, (0, []))
            for action in doing:
                story.act(action)

    writer.meanwhile = meanwhile
    for action in actions:
        story.act(action)
    writer.meanwhile = lambda: None
    story.check()


@given(st.lists(st.integers(0, 120), min_size=1, max_size=200), st.integers(100, 1_000))
def test_slabs_make_the_same_batches_as_records_that_take_the_lock(
    sizes: list[int], batch_bytes: int
) -> None:
    def batches(send: Callable[[Writer, bytes], object]) -> list[int]:
        writer = Writer(batch_bytes=batch_bytes, buffer_bytes=1_000_000)
        for size in sizes:
            send(writer, b"x" * size)
        log = Log(writer.accumulator)
        log.take_all()
        return log.sizes

    assert batches(lambda writer, value: writer.put(value)) == batches(
        lambda writer, value: writer.append("t", value, None, 0, None, None)
    )


@contextmanager
def threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Patient(Writer):
    """A writer for threads: waits for room."""

    @override
    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> tuple[Batch, int]:
        while True:
            try:
                return super().append(topic, value, key, partition, timestamp_ms, headers)
            except BufferFull:
                room = threading.Event()
                self.accumulator.on_room(room.set)
                room.wait()


def sent_by_threads(writer: Writer, log: Log, partition: int | None) -> list[list[SendFuture]]:
    """Send from several threads while another one takes batches; return the futures of each thread."""
    sent: list[list[SendFuture]] = [[] for _ in range(THREADS)]
    ended = threading.Event()

    def send(thread: int) -> None:
        for number in range(RECORDS_EACH):
            sent[thread].append(writer.put(b"%d:%d" % (thread, number), partition))

    def take() -> None:
        while not ended.is_set():
            log.take()

    senders = [threading.Thread(target=send, args=(thread,)) for thread in range(THREADS)]
    taker = threading.Thread(target=take)
    for each in (*senders, taker):
        each.start()
    for each in senders:
        each.join()
    ended.set()
    taker.join()
    return sent


@pytest.mark.parametrize("partition", [0, None], ids=["one partition", "no partition"])
def test_threads_lose_and_repeat_nothing_and_each_keeps_its_order(partition: int | None) -> None:
    writer = Patient()
    log = Log(writer.accumulator)
    with threads_switch_often():
        sent = sent_by_threads(writer, log, partition)
    log.take_all()

    assert sum(map(len, log.values.values())) == THREADS * RECORDS_EACH
    assert max(log.sizes) <= BATCH_BYTES
    for thread, futures in enumerate(sent):
        last = dict.fromkeys(range(PARTITIONS), -1)
        for number, future in enumerate(futures):
            found = future.result(0)
            assert log.values[found.partition][found.offset] == b"%d:%d" % (thread, number)
            assert last[found.partition] < found.offset
            last[found.partition] = found.offset
