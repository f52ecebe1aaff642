"""rota.LogReader gives whole columns and single records, from any offset, and names what it cannot read."""

import threading
import zlib
from collections.abc import Iterator

import pytest

import rota
from rota import errors
from rota.log_reader import END, START, Records, limit_decompressed
from rota_proto.log.columns import Columns, pack
from rota_proto.log.v1 import log_pb2 as pb
from tests.support.coordinator import Coordinator, serving
from tests.support.workdir import workdir

WITHIN_S = 30
TIMES = [1_000, 3_000, 2_000, 3_000]
VALUES = [b"a", None, b"c", b"d"]


@pytest.fixture(scope="module")
def coordinator() -> Iterator[Coordinator]:
    with workdir("log-reader") as folder, serving(folder) as coordinator:
        yield coordinator


@pytest.fixture
def address(coordinator: Coordinator) -> str:
    return f"rota://{coordinator.address}"


@pytest.fixture
def topic(address: str, unique_name: str) -> str:
    """With four records in one batch of its only partition."""
    rota.create_topics(address, {unique_name: 1})
    with rota.Producer(address) as producer:
        for value, time in zip(VALUES, TIMES, strict=True):
            producer.send(unique_name, value, b"k", timestamp_ms=time, headers=[("h", value)])
    return unique_name


@pytest.fixture
def reader(address: str) -> Iterator[rota.LogReader]:
    with rota.LogReader(address) as reader:
        yield reader


def batch(payload: bytes, *, codec: int = 0) -> pb.RecordBatch:
    return pb.RecordBatch(base_offset=10, count=4, payload=payload, codec=codec, base_timestamp_ms=5)


def test_records_begin_where_they_were_asked_for() -> None:
    payload = pack(Columns([b"a", b"b", None, b"d"], None, [5, 6, 7, 8], None), 4, 5)
    records = Records("t", 1, batch(payload), 12)

    assert (len(records), records.base_offset, records.next_offset) == (2, 12, 14)
    assert (list(records.values), list(records.keys)) == ([None, b"d"], [None, None])
    assert (list(records.timestamps_ms), list(records.headers)) == ([7, 8], [(), ()])
    assert list(records) == [
        rota.Record("t", 1, 12, 7, None, None, ()),
        rota.Record("t", 1, 13, 8, None, b"d", ()),
    ]


def test_a_damaged_batch_is_named_by_its_offset() -> None:
    with pytest.raises(errors.CorruptMessage, match=r"t\[1\] at offset 10"):
        list(Records("t", 1, batch(b"\x04b"), 10))


def test_a_batch_of_a_later_version_is_named() -> None:
    with pytest.raises(errors.NotSupported, match="upgrade rota"):
        list(Records("t", 1, batch(b"", codec=7), 10))


def test_a_compressed_batch_is_decompressed_when_its_records_are_read() -> None:
    payload = zlib.compress(pack(Columns([b"a", b"b", None, b"d"]), 4, 5), wbits=31)
    assert list(Records("t", 1, batch(payload, codec=1), 12).values) == [None, b"d"]
    for damaged in (b"no gzip", payload[:-1], payload[:-4] + b"\xff\xff\xff\xff"):
        records = Records("t", 1, batch(damaged, codec=1), 10)
        assert len(records) == 4
        with pytest.raises(errors.CorruptMessage, match=r"t\[1\] at offset 10: the"):
            list(records)


def answered(*partitions: list[pb.RecordBatch]) -> pb.FetchResponse:
    """An answer with these batches, each partition's next offset behind its last one."""
    return pb.FetchResponse(
        partitions=[pb.FetchResponse.Partition(batches=each, next_offset=100) for each in partitions]
    )


def sized(base_offset: int, size: int) -> pb.RecordBatch:
    """A compressed batch that states a size in bytes."""
    return pb.RecordBatch(base_offset=base_offset, codec=1, payload=size.to_bytes(4, "little"))


def test_a_fetch_keeps_the_batches_that_fit_decompressed_and_fetches_the_others_again() -> None:
    found = answered([sized(0, 60), sized(10, 40), sized(20, 1)], [sized(7, 1)], [])
    limit_decompressed(found, bytes_max=100)
    assert [(len(part.batches), part.next_offset) for part in found.partitions] == [(2, 20), (0, 7), (0, 100)]


def test_a_fetch_keeps_its_first_batch_whatever_its_size_is() -> None:
    found = answered([sized(0, 101)], [sized(7, 1)])
    limit_decompressed(found, bytes_max=100)
    assert [(len(part.batches), part.next_offset) for part in found.partitions] == [(1, 100), (0, 7)]


def test_a_batch_that_states_gigabytes_leaves_room_for_others() -> None:
    found = answered([sized(0, 2**32 - 1)], [sized(7, 1)])
    limit_decompressed(found)
    assert [len(part.batches) for part in found.partitions] == [1, 1]


@pytest.mark.process
def test_a_fetch_from_the_middle_of_a_batch_begins_there(reader: rota.LogReader, topic: str) -> None:
    (part,) = reader.fetch({(topic, 0): 2})

    assert [(record.offset, record.value, record.timestamp_ms) for record in part] == [
        (2, b"c", 2_000),
        (3, b"d", 3_000),
    ]
    assert (part.next_offset, part.high_watermark, part.log_start_offset, part.error) == (4, 4, 0, None)


@pytest.mark.process
def test_a_fetch_at_the_end_is_woken_by_the_next_record(
    address: str, reader: rota.LogReader, topic: str
) -> None:
    found: list[rota.Record] = []

    def wait() -> None:
        (part,) = reader.fetch({(topic, 0): 4}, max_wait_ms=WITHIN_S * 1000)
        found.extend(part)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with rota.Producer(address) as producer:
        producer.send(topic, b"next")
    waiting.join(WITHIN_S)
    assert [record.value for record in found] == [b"next"]


@pytest.mark.process
def test_offsets_are_found_by_time(reader: rota.LogReader, topic: str) -> None:
    here = rota.TopicPartition(topic, 0)
    asked = {START: 0, END: 4, 0: 0, 1_000: 0, 1_001: 1, 3_000: 1, 3_001: -1}
    assert {time: reader.offsets_at([here], time)[here] for time in asked} == asked


@pytest.mark.process
def test_an_error_of_one_partition_stands_beside_what_the_others_give(
    reader: rota.LogReader, topic: str
) -> None:
    found = {part.topic: part for part in reader.fetch({(topic, 0): 0, ("no-such", 0): 0})}

    assert isinstance(found["no-such"].error, errors.UnknownTopicOrPartition)
    assert len(list(found[topic])) == 4
    with pytest.raises(errors.UnknownTopicOrPartition):
        list(found["no-such"])
    with pytest.raises(errors.UnknownTopicOrPartition):
        list(reader.read("no-such", 0, until=1))


@pytest.mark.process
def test_topics_are_made_described_enlarged_altered_and_deleted(address: str, unique_name: str) -> None:
    with rota.Topics(address) as topics:
        topics.create({unique_name: 2}, retention_ms=1_000, retention_bytes=5_000)
        topics.create({unique_name: 9})
        topics.add_partitions({unique_name: 3})
        (found,) = topics.describe([unique_name])
        assert (found.partitions, found.retention_ms, found.retention_bytes) == (3, 1_000, 5_000)
        topics.alter([unique_name], retention_ms=2_000)
        (found,) = topics.describe([unique_name])
        assert (found.partitions, found.retention_ms, found.retention_bytes) == (3, 2_000, 5_000)
        with pytest.raises(errors.InvalidConfig, match=unique_name):
            topics.alter([unique_name], retention_bytes=-2)
        with pytest.raises(errors.UnknownTopicOrPartition):
            topics.alter(["no-such"], retention_ms=2_000)
        with pytest.raises(errors.TopicAlreadyExists, match=unique_name):
            topics.create({unique_name: 2}, exist_ok=False)
        with pytest.raises(errors.InvalidPartitions):
            topics.add_partitions({unique_name: 1})
        assert (found.cleanup_policy, found.delete_retention_ms) == ("delete", 86_400_000)
        topics.alter([unique_name], cleanup_policy="delete,compact", delete_retention_ms=5_000)
        (found,) = topics.describe([unique_name])
        assert (found.cleanup_policy, found.delete_retention_ms) == ("compact,delete", 5_000)
        with pytest.raises(
            errors.InvalidConfig, match="expected one of 'delete', 'compact', 'compact,delete'"
        ):
            topics.alter([unique_name], cleanup_policy="remove")
        with pytest.raises(errors.InvalidConfig, match="has no retention; add delete to the policy"):
            topics.alter([unique_name], cleanup_policy="compact", retention_ms=1)
        topics.delete([unique_name])
        with pytest.raises(errors.UnknownTopicOrPartition):
            topics.describe([unique_name])


def test_topics_of_kafka_are_made_with_its_own_tools() -> None:
    with pytest.raises(errors.NotSupported, match="Kafka's own tools"):
        rota.Topics("127.0.0.1:9092")
