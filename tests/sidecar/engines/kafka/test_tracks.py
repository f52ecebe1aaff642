"""Prefetched batches of a Kafka partition are returned in order, whole, and are bounded."""

from rota_sidecar.core.delivery.events import Bounds, Read
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.tracks import AHEAD_BYTES_MAX, AHEAD_BYTES_TOTAL_MAX, Track, limit_of
from rota_sidecar.engines.records import FetchRequest

HERE = Partition("orders", 0)


def request(offset: int, *, delivery_epoch: int = 1, bytes_max: int = 1_000) -> FetchRequest:
    return FetchRequest(delivery_epoch, HERE, offset, bytes_max)


def batch(first: int, count: int = 1, size: int = 100) -> Batch:
    return Batch(first, count, size, None)


def given(track: Track, low: int = 0, high: int = 100) -> Read:
    read = track.take_read(low, high)
    assert read is not None
    return read


def test_batches_are_given_up_to_what_is_wanted_and_the_rest_next_time() -> None:
    track = Track(request(0, bytes_max=250))
    batches = [batch(offset) for offset in range(4)]
    track.append(batches)
    first = given(track)
    assert (first.batches, first.next_offset, track.ahead_bytes) == (batches[:2], 2, 200)
    track.set_request(request(2))
    second = given(track)
    assert (second.batches, second.next_offset, track.ahead_bytes) == (batches[2:], 4, 0)


def test_a_batch_larger_than_what_is_wanted_is_given_alone() -> None:
    track = Track(request(0, bytes_max=1))
    track.append([batch(0), batch(1)])
    assert len(given(track).batches) == 1


def test_nothing_is_returned_without_a_request() -> None:
    track = Track(request(0))
    track.append([batch(0)])
    given(track)
    track.append([batch(1)])
    assert track.take_read(0, 100) is None


def test_what_lies_behind_the_last_record_is_passed_over_at_the_end() -> None:
    track = Track(request(5))
    track.append([batch(5)])
    assert given(track, high=8).bounds == Bounds(0, 8)
    track.set_request(request(6))
    track.reach_end(8)
    assert given(track, high=8) == Read(1, [], 8, Bounds(0, 8))


def test_an_end_that_was_passed_already_is_none() -> None:
    track = Track(request(5))
    track.append([batch(5, 3)])
    track.reach_end(6)
    read = given(track, high=9)
    assert (read.next_offset, read.bounds) == (8, Bounds(0, 9))


def test_readers_stand_at_the_end_under_an_open_transaction() -> None:
    track = Track(request(5))
    track.reach_end(5)
    assert given(track, high=9).bounds == Bounds(0, 5)


def test_unchanged_bounds_are_returned_once_to_each_delivery_epoch() -> None:
    track = Track(request(5))
    track.reach_end(5)
    given(track)
    track.set_request(request(5))
    assert track.take_read(0, 100) is None
    assert track.request is not None
    track.set_request(request(5, delivery_epoch=2))
    assert given(track).delivery_epoch == 2
    track.set_request(request(5, delivery_epoch=2))
    assert given(track, low=3).bounds == Bounds(3, 5)


def test_a_watermark_that_is_not_known_yet_is_no_bound() -> None:
    track = Track(request(5))
    track.append([batch(5)])
    assert given(track, low=-1001, high=-1001).bounds == Bounds(0, 6)


def test_watermarks_that_were_reported_once_hold_until_the_next_ones() -> None:
    track = Track(request(5))
    track.append([batch(5)])
    assert given(track, low=2, high=90).bounds == Bounds(2, 90)
    track.append([batch(6)])
    track.set_request(request(6))
    assert given(track, low=-1001, high=-1001).bounds == Bounds(2, 90), (
        "the consumer knows none of what is set aside"
    )


def test_a_partition_is_full_when_nobody_takes_what_lies_there() -> None:
    track = Track(request(0))
    track.append([batch(0, size=AHEAD_BYTES_MAX)])
    assert not track.is_full(AHEAD_BYTES_MAX), "it is wanted"
    given(track)
    assert not track.is_full(AHEAD_BYTES_TOTAL_MAX), "nothing lies there"
    track.append([batch(1, size=AHEAD_BYTES_MAX)])
    assert track.is_full(AHEAD_BYTES_MAX)


def test_a_partition_is_full_with_little_where_all_together_have_much() -> None:
    track = Track(request(0))
    track.append([batch(0)])
    given(track)
    track.append([batch(1)])
    assert not track.is_full(AHEAD_BYTES_TOTAL_MAX - 1)
    assert track.is_full(AHEAD_BYTES_TOTAL_MAX)


def test_few_partitions_may_have_more_than_many() -> None:
    assert limit_of(0) == limit_of(1) == AHEAD_BYTES_TOTAL_MAX // 2
    assert limit_of(4) == AHEAD_BYTES_TOTAL_MAX // 8
    assert limit_of(1_000) == AHEAD_BYTES_MAX
    track = Track(request(0))
    track.append([batch(0)])
    given(track)
    track.append([batch(1, size=AHEAD_BYTES_MAX)])
    assert not track.is_full(AHEAD_BYTES_MAX, limit_of(1))
    assert track.is_full(AHEAD_BYTES_MAX, limit_of(1_000))
