"""Records of a real Kafka, read as deliveries read them."""

import asyncio
import ctypes
from typing import ClassVar

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka import topic_watch
from rota_sidecar.engines.kafka.read_options import ReadOptions
from rota_sidecar.engines.port import Unreachable
from rota_sidecar.engines.records import OffsetAndTimestamp
from tests.kafka.sidecar_reading import CLIENTS, WITHIN_S, Client, Writer, play
from tests.sidecar.engines.readers import Passage, Reader
from tests.support.kafka import MORTAL, Kafka, running

pytestmark = pytest.mark.kafka

MIB = 1 << 20
# librdkafka's queue holds 8 MiB, and a response 4 MiB.
READ_AHEAD_MAX = 20 * MIB


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client that reads Kafka's records."""
    return CLIENTS[request.param]


@pytest.fixture
def topic(kafka: Kafka, unique_name: str) -> str:
    """One with two partitions."""
    kafka.create_topic(unique_name, partitions=2)
    return unique_name


@pytest.fixture
def writer(kafka: Kafka, topic: str) -> Writer:
    return Writer(kafka, topic)


def delete_records(kafka: Kafka, topic: str, before: int) -> None:
    admin = AdminClient(kafka.client_config())
    for deleted in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        deleted.result(WITHIN_S)


def delete_topic(kafka: Kafka, topic: str) -> None:
    admin = AdminClient(kafka.client_config())
    admin.delete_topics([topic])[topic].result(WITHIN_S)


def test_records_come_in_order_with_all_that_belongs_to_them(
    kafka: Kafka, topic: str, client: Client
) -> None:
    producer = Producer(kafka.client_config())
    producer.produce(topic, b"a", None, 0, timestamp=1_000, headers=[("h", b"1"), ("n", None), ("h", b"2")])
    producer.produce(topic, None, b"k", 0, timestamp=900)
    producer.produce(topic, b"", b"", 0, timestamp=2_000)
    producer.produce(topic, b"other", b"k", 1, timestamp=2_000)
    producer.flush(WITHIN_S)

    async def story(reader: Reader) -> None:
        passages = [reader.read_to(Partition(topic, number), end) for number, end in ((0, 3), (1, 1))]
        here, there = await asyncio.gather(*passages)
        assert [tuple(row) for row in here.rows] == [
            (0, b"a", None, 1_000, (("h", b"1"), ("n", None), ("h", b"2"))),
            (1, None, b"k", 900, ()),
            (2, b"", b"", 2_000, ()),
        ]
        assert there.values == [b"other"]
        assert (here.bounds, there.bounds) == (Bounds(0, 3), Bounds(0, 1))
        assert all(batch.keys is not None for batch in here.batches)

    play(kafka, story, ReadOptions("any-group", read_committed=True, with_keys=True), client=client)


def damage(kafka: Kafka, topic: str, number: int, value: bytes) -> None:
    """Change a byte of a record where the broker keeps it, as its disk would."""
    (segment,) = (kafka.broker(1).data / f"{topic}-{number}").glob("*.log")
    with segment.open("r+b") as file:
        at = file.read().index(value)
        file.seek(at)
        file.write(b"?")


def test_a_damaged_batch_stops_its_partition_alone_until_it_is_deleted(
    kafka: Kafka, topic: str, writer: Writer, client: Client
) -> None:
    for value in (b"before", b"damaged", b"behind"):
        writer.write(value)
        writer.write(value, partition=1)
    damage(kafka, topic, 0, b"damaged")

    async def story(reader: Reader) -> None:
        bad, good = Partition(topic, 0), Partition(topic, 1)
        delivery_epoch = reader.open()
        assert (await reader.read_to(bad, 1, delivery_epoch=delivery_epoch)).values == [b"before"]
        for _ in range(2):
            failed = await reader.failure(bad, 1, delivery_epoch=delivery_epoch)
            assert failed.fetch_error is FetchError.CORRUPT
            assert "the batch at offset 1 cannot be read" in failed.message
            assert f"`rota topics delete-records {topic} --partition 0 --before OFFSET`" in failed.message
        assert (await reader.read_to(good, 3)).values == [b"before", b"damaged", b"behind"]
        await asyncio.to_thread(delete_records, kafka, topic, 2)
        failed = await reader.failure(bad, 1, delivery_epoch=delivery_epoch)
        if failed.fetch_error is FetchError.CORRUPT:
            # librdkafka fetches ahead: it had the batch from the broker before it was deleted, once at most.
            failed = await reader.failure(bad, 1, delivery_epoch=delivery_epoch)
        assert failed.fetch_error is FetchError.OUT_OF_RANGE
        assert (await reader.read_to(bad, 3, offset=2)).values == [b"behind"]

    play(kafka, story, client=client)


def test_end_offsets_are_reported_at_once_and_then_only_when_they_change(
    kafka: Kafka, topic: str, writer: Writer, client: Client
) -> None:
    async def story(reader: Reader) -> None:
        here, delivery_epoch = Partition(topic, 0), reader.open()
        first = await reader.read(here, 0, delivery_epoch=delivery_epoch)
        assert (first.batches, first.next_offset, first.bounds) == ([], 0, Bounds(0, 0))
        later = reader.fetch(here, 0, delivery_epoch=delivery_epoch)
        await asyncio.to_thread(writer.write, b"a")
        async with asyncio.timeout(WITHIN_S):
            found = await later
        assert isinstance(found, Read)
        assert (len(found.batches), found.next_offset) == (1, 1)

    play(kafka, story, client=client)


def test_what_lies_read_ahead_is_bounded_and_comes_when_it_is_wanted(
    kafka: Kafka, topic: str, writer: Writer, client: Client
) -> None:
    records, size = 5_000, 20_000
    for start in range(0, records, 100):
        writer.write(*(b"%08d" % number * (size // 8) for number in range(start, start + 100)))
    writer.write(b"x", partition=1)

    async def story(reader: Reader) -> None:
        here, delivery_epoch = Partition(topic, 0), reader.open()
        before = allocated_bytes()
        async with asyncio.timeout(WITHIN_S):
            first = await reader.fetch(here, 0, delivery_epoch=delivery_epoch, bytes_max=1)
        assert isinstance(first, Read)
        # Nobody takes more of it, and a neighbour is read meanwhile.
        neighbour = await reader.read_to(Partition(topic, 1), 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await reader.fetch(Partition(topic, 1), 1, delivery_epoch=neighbour.delivery_epoch)
        assert allocated_bytes() - before < READ_AHEAD_MAX, "100 MB lie there to be read"
        start = Passage(here, delivery_epoch, [], 0, Bounds(0, 0)).with_more(first)
        rest = await reader.read_to(here, records, offset=start.next_offset, delivery_epoch=delivery_epoch)
        taken = [int((value or b"")[:8]) for value in (*start.values, *rest.values)]
        assert taken == list(range(records))
        assert max(batch.size for batch in rest.batches) <= MIB

    play(kafka, story, client=client)


def test_what_was_set_aside_when_somebody_stopped_is_read_by_the_next_one(
    kafka: Kafka, topic: str, writer: Writer, client: Client
) -> None:
    records = 200
    writer.write(*(bytes(10_000) for _ in range(records)))
    writer.write(b"x", partition=1)

    async def story(reader: Reader) -> None:
        here, neighbour, before = Partition(topic, 0), Partition(topic, 1), reader.open()
        async with asyncio.timeout(WITHIN_S):
            await reader.fetch(here, 0, delivery_epoch=before, bytes_max=1)
        # The neighbour is heard of after all that lay there before, and by then the partition is set aside.
        await reader.read_to(neighbour, 1)
        await asyncio.to_thread(writer.write, b"y", partition=1)
        await reader.read_to(neighbour, 2, offset=1)
        reader.records.stop(before)
        assert (await reader.read_to(here, records)).offsets == list(range(records))

    play(kafka, story, client=client)


class Mallinfo(ctypes.Structure):
    """Counters of the C library's heap: `mallinfo2(3)`."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated_bytes() -> int:
    """
    Bytes that this process has allocated and not freed; Python takes those of small objects elsewhere.

    The memory that the process has had from the kernel is up to three times as much on a busy machine: freed pieces are scattered over the
    heaps of the threads.
    """
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def test_slow_takers_miss_nothing_and_get_nothing_twice(kafka: Kafka, topic: str, client: Client) -> None:
    records = 20_000
    writer = Writer(kafka, topic)

    def write_half() -> None:
        for partition in (0, 1):
            values = (b"%0100d" % number for number in range(records // 2))
            writer.write(*values, partition=partition)

    async def take(reader: Reader, partition: Partition) -> list[int]:
        delivery_epoch, offset, turns, found = reader.open(), 0, 0, list[int]()
        while offset < records:
            turns += 1
            if turns % 7 == 0:
                # Long enough for it to be set aside.
                await asyncio.sleep(0.02)
            if turns % 11 == 0:
                reader.records.stop(delivery_epoch)
                delivery_epoch = reader.open()
            read = await reader.fetch(partition, offset, delivery_epoch=delivery_epoch, bytes_max=100_000)
            assert isinstance(read, Read)
            found += [row for each in read.batches for row in range(each.first, each.end)]
            offset = read.next_offset
        return found

    async def story(reader: Reader) -> None:
        takers = [take(reader, Partition(topic, number)) for number in (0, 1)]
        taken, _ = await asyncio.gather(asyncio.gather(*takers), asyncio.to_thread(write_half))
        assert taken == [list(range(records))] * 2

    write_half()
    play(kafka, story, client=client)


def test_hundreds_of_partitions_are_read_together_and_each_in_order(
    kafka: Kafka, unique_name: str, client: Client
) -> None:
    partitions = 400
    kafka.create_topic(unique_name, partitions=partitions)
    writer = Writer(kafka, unique_name)

    async def story(reader: Reader) -> None:
        everywhere = [Partition(unique_name, number) for number in range(partitions)]
        passages = [asyncio.create_task(reader.read_to(each, 2)) for each in everywhere]

        def write() -> None:
            for value in (b"a", b"b"):
                for number in range(partitions):
                    writer.producer.produce(unique_name, value, None, number)
                writer.producer.flush(WITHIN_S)

        await asyncio.to_thread(write)
        found = await asyncio.gather(*passages)
        assert [passage.partition for passage in found] == everywhere
        assert {tuple(passage.values) for passage in found} == {(b"a", b"b")}

    play(kafka, story, client=client)


def test_what_was_compacted_away_leaves_gaps_and_is_no_lag(client: Client) -> None:
    compacted = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
    }
    here = Partition("compacted", 0)

    async def written_and_read(reader: Reader, writer: Writer, end: int) -> Passage:
        # Each record closes the segment before it, and the broker cleans when it gets to that.
        for key in (b"a", b"b"):
            await asyncio.to_thread(writer.write, b"1", b"2", key=key)
        return await reader.read_to(here, end)

    with running(settings={"log.cleaner.backoff.ms": "100"}) as kafka:
        admin = AdminClient(kafka.client_config())
        admin.create_topics([NewTopic(here.topic, 1, config=compacted)])[here.topic].result(WITHIN_S)
        writer = Writer(kafka, here.topic)

        async def story(reader: Reader) -> None:
            end = 4
            passage = await written_and_read(reader, writer, end)
            while len(passage.offsets) == end:
                end += 4
                passage = await written_and_read(reader, writer, end)
            assert passage.next_offset == passage.bounds.end == end
            assert list(passage.offsets) == sorted(set(passage.offsets))
            assert {row.key for row in passage.rows} == {b"a", b"b"}

        play(kafka, story, ReadOptions("any-group", read_committed=True, with_keys=True), client=client)


def test_who_stops_hears_nothing_more(kafka: Kafka, topic: str, writer: Writer, client: Client) -> None:
    async def story(reader: Reader) -> None:
        here, there = Partition(topic, 0), Partition(topic, 1)
        stopped, kept = reader.open(), reader.open()
        await reader.read(here, 0, delivery_epoch=stopped)
        await reader.read(there, 0, delivery_epoch=kept)
        for_nobody = reader.fetch(here, 0, delivery_epoch=stopped)
        for_us = reader.fetch(there, 0, delivery_epoch=kept)
        reader.records.stop(stopped)
        reader.records.stop(stopped)
        for number in (0, 1):
            await asyncio.to_thread(writer.write, b"a", partition=number)
        async with asyncio.timeout(WITHIN_S):
            await for_us
        assert not for_nobody.done()
        assert reader.unexpected == []

    play(kafka, story, client=client)


def test_another_fetch_of_a_partition_ends_the_one_before_in_silence(
    kafka: Kafka, topic: str, writer: Writer, client: Client
) -> None:
    writer.write(b"a", b"b", b"c")

    async def story(reader: Reader) -> None:
        here, before = Partition(topic, 0), reader.open()
        await reader.read_to(here, 3, delivery_epoch=before)
        waits = reader.fetch(here, 3, delivery_epoch=before)
        assert (await reader.read_to(here, 3, offset=1)).values == [b"b", b"c"]
        assert not waits.done()
        # Who goes on where another one stopped hears where that is.
        went_on = await reader.read(here, 3)
        assert (went_on.batches, went_on.bounds) == ([], Bounds(0, 3))

    play(kafka, story, client=client)


def test_an_offset_that_is_gone_is_out_of_range(
    kafka: Kafka, topic: str, writer: Writer, client: Client
) -> None:
    writer.write(b"a", b"b", b"c")
    delete_records(kafka, topic, 2)

    async def story(reader: Reader) -> None:
        here = Partition(topic, 0)
        for offset in (1, 4):
            failed = await reader.failure(here, offset)
            assert failed.fetch_error is FetchError.OUT_OF_RANGE
            assert failed.message.startswith(f"offset {offset} is out of range; reset")
        passage = await reader.read_to(here, 3, offset=2)
        assert (passage.values, passage.bounds) == ([b"c"], Bounds(2, 3))
        assert await reader.records.bounds([here], WITHIN_S) == {here: Bounds(2, 3)}

    play(kafka, story, client=client)


def test_a_topic_or_partition_that_does_not_exist_is_unknown(
    kafka: Kafka, topic: str, client: Client
) -> None:
    async def story(reader: Reader) -> None:
        missing = [Partition(f"{topic}-missing", 0), Partition(topic, 2)]
        failures = await asyncio.gather(*(reader.failure(each, 0) for each in missing))
        assert {failed.fetch_error for failed in failures} == {FetchError.UNKNOWN_TOPIC}

    play(kafka, story, client=client)
    known = AdminClient(kafka.client_config()).list_topics(timeout=WITHIN_S).topics
    assert f"{topic}-missing" not in known, "nobody makes a topic by reading it"


def test_partitions_that_a_topic_grows_are_read(kafka: Kafka, topic: str, client: Client) -> None:
    async def story(reader: Reader) -> None:
        grown = Partition(topic, 2)
        await reader.read(Partition(topic, 0), 0)
        assert (await reader.failure(grown, 0)).fetch_error is FetchError.UNKNOWN_TOPIC
        admin = AdminClient(kafka.client_config())
        await asyncio.to_thread(admin.create_partitions([NewPartitions(topic, 3)])[topic].result, WITHIN_S)
        await asyncio.to_thread(Writer(kafka, topic).write, b"a", partition=2)
        assert (await reader.read_to(grown, 1)).values == [b"a"]

    play(kafka, story, client=client)


def test_a_deleted_topic_is_unknown_to_those_who_wait_for_it(
    kafka: Kafka, topic: str, client: Client
) -> None:
    async def story(reader: Reader) -> None:
        here, delivery_epoch = Partition(topic, 0), reader.open()
        await reader.read(here, 0, delivery_epoch=delivery_epoch)
        waiting = asyncio.create_task(reader.failure(here, 0, delivery_epoch=delivery_epoch))
        await asyncio.to_thread(delete_topic, kafka, topic)
        assert (await waiting).fetch_error is FetchError.UNKNOWN_TOPIC

    play(kafka, story, client=client)


def test_a_topic_made_anew_is_another_one(
    kafka: Kafka, topic: str, writer: Writer, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    monkeypatch.setattr(topic_watch, "CHECK_INTERVAL_S", 0.2)
    writer.write(b"old", b"old")

    async def story(reader: Reader) -> None:
        here, delivery_epoch = Partition(topic, 0), reader.open()
        passage = await reader.read_to(here, 2, delivery_epoch=delivery_epoch)
        await asyncio.to_thread(anew)
        failed: Read | ReadFailed = await reader.fetch(
            here, passage.next_offset, delivery_epoch=delivery_epoch
        )
        while isinstance(failed, Read):
            failed = await reader.fetch(here, failed.next_offset, delivery_epoch=delivery_epoch)
        assert failed.fetch_error in (FetchError.OTHER_TOPIC, FetchError.UNKNOWN_TOPIC)
        if failed.fetch_error is FetchError.OTHER_TOPIC:
            assert (await reader.failure(here, 2, delivery_epoch=delivery_epoch)) == failed
        # Whoever begins with it reads it.
        assert (await reader.read_to(here, 3)).values == [b"new"] * 3

    def anew() -> None:
        delete_topic(kafka, topic)
        kafka.create_topic(topic, partitions=2)
        Writer(kafka, topic).write(b"new", b"new", b"new")

    play(kafka, story, client=client)


def test_bounds_and_times_are_looked_up_where_there_are_any(kafka: Kafka, topic: str, client: Client) -> None:
    producer = Producer(kafka.client_config())
    for time in (1_000, 2_000):
        producer.produce(topic, b"a", None, 0, timestamp=time)
    producer.flush(WITHIN_S)

    async def story(reader: Reader) -> None:
        here, empty, missing = Partition(topic, 0), Partition(topic, 1), Partition(f"{topic}-no", 0)
        records = reader.records
        assert await records.bounds([here, empty, missing], WITHIN_S) == {
            here: Bounds(0, 2),
            empty: Bounds(0, 0),
        }
        assert await records.at_times({here: 1_001, empty: 0, missing: 0}, WITHIN_S) == {
            here: OffsetAndTimestamp(1, 2_000)
        }
        assert await records.at_times({here: 2_001}, WITHIN_S) == {}
        assert (await records.bounds([], WITHIN_S), await records.at_times({}, WITHIN_S)) == ({}, {})

    play(kafka, story, client=client)


def test_a_broker_that_dies_is_read_on_when_it_is_back_and_said_once(client: Client) -> None:
    with running(settings=MORTAL) as kafka:
        kafka.create_topic("lasting")
        Writer(kafka, "lasting").write(b"a")

        async def story(reader: Reader) -> None:
            here, delivery_epoch = Partition("lasting", 0), reader.open()
            assert (await reader.read_to(here, 1, delivery_epoch=delivery_epoch)).values == [b"a"]
            waiting = asyncio.create_task(reader.read_to(here, 2, offset=1, delivery_epoch=delivery_epoch))
            await asyncio.to_thread(kafka.broker(1).kill)
            outage = await reader.outage()
            assert outage.startswith("no records can be read from Kafka (")
            assert "connection refused" in outage.lower()
            with pytest.raises(Unreachable, match="connection refused by"):
                await reader.records.bounds([here], 1)
            await asyncio.to_thread(kafka.broker(1).start)
            assert await reader.outage() == ""
            await asyncio.to_thread(Writer(kafka, "lasting").write, b"b")
            assert (await waiting).values == [b"b"]
            assert reader.outages.empty()

        play(kafka, story, client=client)
