"""Translation of Fetch responses that a real log gives rarely or never."""

import zlib

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.columns import Columns, pack
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.batch_slicing import columns_in, content_of
from rota_sidecar.engines.records import FetchRequest
from rota_sidecar.engines.rota.fetched import RECORD_BYTES, ReadOptions, Track, result_of

OLD, NEW = b"o" * 16, b"n" * 16
OPTIONS = ReadOptions(read_committed=True, with_keys=False)
WITH_KEYS = ReadOptions(read_committed=True, with_keys=True)
WANTED = FetchRequest(7, Partition("orders", 0), 11, 1_000)
Part = log_pb2.FetchResponse.Partition


def part(error: pb.ErrorCode.ValueType = pb.NONE, *, topic_id: bytes = OLD) -> Part:
    return Part(
        topic="orders",
        error_code=error,
        topic_id=topic_id,
        log_start_offset=2,
        high_watermark=20,
        last_stable_offset=15,
        next_offset=11,
    )


def batch(base_offset: int, keys: list[bytes | None], *, control: bool = False) -> log_pb2.RecordBatch:
    count = len(keys)
    payload = pack(Columns([b"v"] * count, keys), count, 1_000)
    return log_pb2.RecordBatch(
        base_offset=base_offset, count=count, payload=payload, base_timestamp_ms=1_000, control=control
    )


def test_markers_and_what_lies_before_the_offset_are_left_out() -> None:
    answer = part()
    answer.batches.extend(
        [batch(8, [b"x"] * 3), batch(10, [b"a", b"b", None]), batch(13, [None], control=True)]
    )
    answer.next_offset = 14
    read = result_of(answer, WANTED, Track(7), WITH_KEYS)
    assert isinstance(read, Read)
    (found,) = read.batches
    assert (found.first, found.count, found.keys, read.next_offset) == (11, 2, [b"b", None], 14)
    assert (read.delivery_epoch, read.bounds) == (7, Bounds(2, 15))


def test_a_batch_without_keys_has_a_null_for_each_record() -> None:
    answer = part()
    answer.batches.append(batch(11, [None, None]))
    read = result_of(answer, WANTED, Track(7), WITH_KEYS)
    assert isinstance(read, Read)
    assert read.batches[0].keys == [None, None]


def test_only_changes_are_returned_and_the_first_fetch_does_not_wait_for_any() -> None:
    track = Track(7)
    urgent = [track.is_urgent]
    assert result_of(part(), WANTED, track, OPTIONS) == Read(7, [], 11, Bounds(2, 15))
    urgent.append(track.is_urgent)
    assert result_of(part(), WANTED, track, OPTIONS) is None
    assert urgent == [True, False]


def test_an_id_that_is_gone_is_asked_about_once_more_without_it() -> None:
    track = Track(7, topic_id=OLD)
    assert result_of(part(pb.UNKNOWN_TOPIC_ID), WANTED, track, OPTIONS) is None
    assert track.is_urgent
    failed = result_of(part(pb.UNKNOWN_TOPIC_OR_PARTITION), WANTED, track, OPTIONS)
    assert isinstance(failed, ReadFailed)
    assert (failed.fetch_error, failed.delivery_epoch) == (FetchError.UNKNOWN_TOPIC, 7)


def test_a_recreated_topic_fails_every_fetch() -> None:
    track = Track(7, topic_id=OLD)
    assert result_of(part(pb.UNKNOWN_TOPIC_ID), WANTED, track, OPTIONS) is None
    for _ in range(2):
        failed = result_of(part(topic_id=NEW), WANTED, track, OPTIONS)
        assert isinstance(failed, ReadFailed)
        assert failed.fetch_error is FetchError.OTHER_TOPIC


@pytest.mark.parametrize("error", [pb.KAFKA_STORAGE_ERROR, pb.UNKNOWN_SERVER_ERROR])
def test_what_may_pass_is_waited_for(error: pb.ErrorCode.ValueType) -> None:
    failed = result_of(part(error), WANTED, Track(7), OPTIONS)
    assert isinstance(failed, ReadFailed)
    assert failed.fetch_error is FetchError.UNREACHABLE
    assert pb.ErrorCode.Name(error) in failed.message


def compressed(base_offset: int, values: int, *, size: int = 100) -> log_pb2.RecordBatch:
    """A batch of so many values, which compress to a fraction."""
    payload = pack(Columns([b"v" * size] * values), values, 1_000)
    return log_pb2.RecordBatch(
        base_offset=base_offset, count=values, payload=gzip(payload), codec=1, base_timestamp_ms=1_000
    )


def gzip(payload: bytes) -> bytes:
    return zlib.compress(payload, wbits=31)


def test_a_compressed_batch_is_delivered_decompressed() -> None:
    answer = part()
    answer.batches.append(compressed(10, 3))
    read = result_of(answer, WANTED, Track(7), WITH_KEYS)
    assert isinstance(read, Read)
    (found,) = read.batches
    content = content_of(found)
    assert (found.first, found.count, found.size, content.codec) == (11, 2, len(content.payload), 0)
    assert columns_in(content).values == [b"v" * 100] * 3


def test_compressed_batches_fill_the_memory_by_their_decompressed_size() -> None:
    answer, track = part(), Track(7)
    answer.batches.extend(compressed(base, 6) for base in (11, 17, 23, 29))
    answer.next_offset = 35
    read = result_of(answer, WANTED, track, OPTIONS)
    assert isinstance(read, Read)
    # The second one exceeds the 1,000 bytes.
    assert ([each.first for each in read.batches], read.next_offset) == ([11, 17], 23)
    stored, size = len(answer.batches[0].payload), read.batches[0].size
    assert track.stored_bytes(10_000) == 10_000 * stored // size < 1_000
    assert track.stored_bytes(1) == 1


def test_after_batches_without_compression_as_much_is_fetched_as_memory_holds() -> None:
    answer, track = part(), Track(7, stored_share=0.01)
    answer.batches.append(batch(11, [b"k" * 20]))
    result_of(answer, WANTED, track, OPTIONS)
    assert track.stored_bytes(1_000) == 1_000


DAMAGES: list[dict[str, int | bytes]] = [
    {"codec": 1},
    {"codec": 1, "payload": gzip(b"no columns")},
    {"codec": 1, "payload": gzip(b"v" * 100)[:-4] + b"\xff\xff\xff\xff"},
    {"payload": b"garbage"},
    {"codec": 7},
    {"count": 2**31 - 1 - 20},
    {"count": 4},
]


@pytest.mark.parametrize("options", [OPTIONS, WITH_KEYS])
@pytest.mark.parametrize("damage", DAMAGES)
def test_batches_before_one_that_cannot_be_read_come_first(
    options: ReadOptions, damage: dict[str, int | bytes]
) -> None:
    bad = batch(13, [b"c"])
    for field, value in damage.items():
        setattr(bad, field, value)
    answer = part()
    answer.batches.extend([batch(11, [b"a", b"b"]), bad, batch(30, [b"never reached"])])
    answer.next_offset = 31
    read = result_of(answer, WANTED, Track(7), options)
    assert isinstance(read, Read)
    assert ([each.first for each in read.batches], read.next_offset) == ([11], 13)
    del answer.batches[0]
    failed = result_of(answer, WANTED._replace(offset=13), Track(7), options)
    assert isinstance(failed, ReadFailed)
    assert failed.fetch_error is FetchError.CORRUPT
    behind = 13 + bad.count
    assert f"`rota topics delete-records orders --partition 0 --before {behind}`" in failed.message
    assert failed.unreadable is not None
    kept = content_of(failed.unreadable.batch)
    assert (kept.base_offset, kept.count, failed.unreadable.next_offset) == (13, 1, behind)
    columns = columns_in(kept)
    assert columns.values == [bad.payload]
    assert columns.headers is not None
    assert dict(columns.headers[0]) == {
        "rota-batch-base-offset": b"13",
        "rota-batch-count": b"%d" % bad.count,
        "rota-batch-codec": b"%d" % bad.codec,
    }


def test_a_batch_that_is_damaged_in_the_logs_file_is_named_with_what_is_left_of_it() -> None:
    answer = part(pb.CORRUPT_MESSAGE)
    failed = result_of(answer, WANTED, Track(7), OPTIONS)
    assert isinstance(failed, ReadFailed)
    assert (failed.fetch_error, failed.unreadable) == (FetchError.CORRUPT, None)
    answer.batches.append(batch(10, [b"a", b"b", b"c"]))
    failed = result_of(answer, WANTED, Track(7), OPTIONS)
    assert isinstance(failed, ReadFailed)
    assert "--before 13" in failed.message
    assert failed.unreadable is not None
    assert failed.unreadable.next_offset == 13


def test_batches_of_very_many_records_in_few_bytes_come_one_by_one() -> None:
    count = WANTED.bytes_max // RECORD_BYTES + 1
    answer = part()
    for number in range(3):
        answer.batches.append(batch(11 + number * count, [None] * count))
        answer.batches[-1].payload = pack(Columns(), count, 1_000)
    answer.next_offset = 11 + 3 * count
    read = result_of(answer, WANTED, Track(7), WITH_KEYS)
    assert isinstance(read, Read)
    assert ([each.first for each in read.batches], read.next_offset) == ([11], 11 + count)
