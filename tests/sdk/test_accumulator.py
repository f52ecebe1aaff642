"""Records wait in batches by size and age, within a bounded buffer."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import errors
from rota.clocks import Clocks
from rota.producer.accumulator import Accumulator, BufferFull, Limits, UnknownTopic
from rota.producer.batches import RECORD_BYTES, Batch
from rota.producer.bulk import chunks
from rota.producer.futures import SendFuture
from rota_proto.log.keys import murmur2

LINGER_S = 0.5
DELIVERY_S = 10.0
RECORD = b"x" * (100 - RECORD_BYTES)


class Clock:
    """A clock that stands."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def read(self) -> float:
        return self.now_s


def made(clock: Clock | None = None, *, batch_bytes: int = 300, buffer_bytes: int = 10_000) -> Accumulator:
    """One that knows a topic with four partitions."""
    limits = Limits(
        batch_bytes=batch_bytes,
        record_bytes=1_000,
        buffer_bytes=buffer_bytes,
        request_bytes=1_000,
        linger_s=LINGER_S,
        delivery_timeout_s=DELIVERY_S,
    )
    clock = clock or Clock()
    accumulator = Accumulator(limits, Clocks(lambda: int(clock.now_s * 1000), clock.read), lambda: None)
    accumulator.partitions["t"] = 4
    return accumulator


def send(accumulator: Accumulator, partition: int | None = 0, value: bytes = RECORD) -> tuple[Batch, int]:
    return accumulator.append("t", value, None, partition, None, None)


def test_a_batch_waits_until_it_is_old_enough() -> None:
    clock = Clock()
    accumulator = made(clock)
    batch, _ = send(accumulator)

    assert accumulator.take(clock.now_s) == ([], clock.now_s + LINGER_S)
    ((_, batches),), _ = accumulator.take(clock.now_s + LINGER_S)
    assert batches == [batch]


def test_a_full_batch_does_not_wait() -> None:
    accumulator = made()
    sent = [send(accumulator) for _ in range(4)]

    assert [index for _, index in sent] == [0, 1, 2, 0]
    ((_, batches),), _ = accumulator.take(0.0)
    assert batches == [sent[0][0], sent[3][0]]


def test_a_partition_gives_out_nothing_while_a_request_has_some_of_it() -> None:
    accumulator = made()
    for _ in range(4):
        send(accumulator)
    taken, _ = accumulator.take(0.0)
    for _ in range(4):
        send(accumulator)

    assert accumulator.take(1e9) == ([], None)
    accumulator.release(queue for queue, _ in taken)
    ((_, batches),), _ = accumulator.take(1e9)
    assert sum(len(batch.values) for batch in batches) == 4


def test_a_request_holds_five_batches_of_a_partition_at_most() -> None:
    accumulator = made(batch_bytes=100)
    for _ in range(12):
        send(accumulator)
    counts = []
    while taken := accumulator.take(1e9)[0]:
        counts.append(len(taken[0][1]))
        accumulator.release(queue for queue, _ in taken)
    assert counts == [5, 5, 2]


def test_records_without_a_key_stay_together_until_their_batch_is_closed() -> None:
    accumulator = made(buffer_bytes=100_000)
    batches = [send(accumulator, None)[0] for _ in range(300)]
    assert sum(before is not after for before, after in pairwise(batches)) == 99
    assert {batch.partition for batch in batches} == {0, 1, 2, 3}


def test_the_buffer_is_bounded_and_signals_room() -> None:
    accumulator = made(buffer_bytes=500)
    sent = [send(accumulator) for _ in range(5)]
    with pytest.raises(BufferFull):
        send(accumulator)
    notified: list[str] = []
    accumulator.on_room(lambda: notified.append("room"))
    # Nothing lingers while somebody waits.
    ((_, batches),), _ = accumulator.take(0.0)
    assert notified == []

    accumulator.complete(batches[0], 0)

    assert notified == ["room"]
    send(accumulator)
    assert sent[0][0].done


def test_a_record_larger_than_the_buffer_goes_alone() -> None:
    accumulator = made(buffer_bytes=50)
    send(accumulator)
    with pytest.raises(BufferFull):
        send(accumulator)


def test_a_record_above_the_limit_is_refused_and_leaves_nothing_behind() -> None:
    accumulator = made()
    with pytest.raises(errors.RecordTooLarge):
        send(accumulator, value=b"x" * 1_000)
    assert accumulator.take(1e9) == ([], None)


def test_an_unknown_topic_is_asked_for() -> None:
    for partition in (None, 0):
        with pytest.raises(UnknownTopic):
            made().append("other", b"x", None, partition, None, None)


def test_what_is_overdue_is_given_back_in_order() -> None:
    clock = Clock()
    accumulator = made(clock, batch_bytes=100)
    old = [send(accumulator)[0] for _ in range(2)]
    clock.now_s += DELIVERY_S
    young = send(accumulator)[0]

    assert accumulator.expired(clock.now_s) == old
    ((_, batches),), _ = accumulator.take(1e9)
    assert batches == [young]


def test_a_refusal_is_raised_to_whoever_sends() -> None:
    accumulator = made()
    accumulator.refusal = errors.ProducerClosed("closed")
    with pytest.raises(errors.ProducerClosed):
        send(accumulator)
    with pytest.raises(errors.ProducerClosed):
        accumulator.append_many("t", None, [b"x"], None)


def test_only_the_first_outcome_counts() -> None:
    accumulator = made()
    batch, index = send(accumulator)
    accumulator.complete(batch, 7)
    accumulator.complete(batch, -1, errors.TimedOut("late"))
    assert SendFuture(batch, index).result(0).offset == 7


def test_an_outcome_that_is_not_there_in_time_is_said() -> None:
    batch, index = send(made())
    with pytest.raises(errors.TimedOut, match="not sent after 0 s"):
        SendFuture(batch, index).result(0)


SIZES = st.lists(st.integers(0, 120), min_size=1, max_size=60)


@given(SIZES, st.integers(100, 400), st.integers(200, 2_000))
def test_a_bulk_makes_the_same_batches_as_its_records_one_by_one(
    sizes: list[int], batch_bytes: int, buffer_bytes: int
) -> None:
    values = [b"x" * size for size in sizes]
    one_by_one = made(batch_bytes=batch_bytes, buffer_bytes=buffer_bytes)
    singly: list[tuple[int, int]] = []
    batches: list[Batch] = []
    for value in values:
        try:
            batch, index = send(one_by_one, 0, value)
        except BufferFull:
            break
        if index == 0:
            batches.append(batch)
        singly.append((len(batches) - 1, index))
    at_once = made(batch_bytes=batch_bytes, buffer_bytes=buffer_bytes)

    parts = at_once.append_many("t", 0, values, None)

    found: list[Batch] = []
    together: list[tuple[int, int]] = []
    for batch, first, count in parts:
        if first == 0:
            found.append(batch)
        together += [(len(found) - 1, index) for index in range(first, first + count)]
    assert together == singly
    assert [batch.values for batch in found] == [batch.values for batch in batches]
    assert [batch.size for batch in found] == [batch.size for batch in batches]


@given(st.lists(st.none() | st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=30), st.booleans())
def test_portions_hold_every_record_once_with_its_own_key(keys: list[bytes | None], keyed: bool) -> None:
    values = [b"%d" % number for number in range(len(keys))]
    cut = list(chunks(values, keys if keyed else None, 4))
    assert sorted(position for chunk in cut for position in chunk.positions) == list(range(len(keys)))
    for chunk in cut:
        assert list(chunk.values) == [values[position] for position in chunk.positions]
        assert list(chunk.positions) == sorted(chunk.positions)
        if keyed:
            assert chunk.keys is not None
            assert list(chunk.keys) == [keys[position] for position in chunk.positions]
            assert {None if key is None else murmur2(key) % 4 for key in chunk.keys} == {chunk.partition}
