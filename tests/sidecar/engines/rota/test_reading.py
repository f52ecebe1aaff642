"""Records of a real log, read as deliveries read them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log import columns
from rota_proto.log.compression import GZIP, compress
from rota_proto.log.v1 import log_pb2 as pb
from rota_sidecar.core.delivery.events import Bounds, FetchError, ReadFailed
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.batch_slicing import columns_in, content_of
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import FetchLimits, OffsetAndTimestamp
from rota_sidecar.engines.rota.connection import Credentials
from rota_sidecar.engines.rota.fetched import ReadOptions
from rota_sidecar.engines.rota.reading import RotaRecords
from tests.log.conversation import Conversation, Transaction, batch
from tests.sidecar.engines.readers import Reader
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.ports import free_port

pytestmark = pytest.mark.process

WITHIN_S = 30
NOBODY = "127.0.0.1:1"
COMMITTED = ReadOptions(read_committed=True, with_keys=False)
UNCOMMITTED = ReadOptions(read_committed=False, with_keys=False)
Story = Callable[[Conversation, Reader], Awaitable[None]]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all that do not stop it."""
    with serving(tmp_path_factory.mktemp("reading")) as coordinator:
        yield coordinator.address


@asynccontextmanager
async def reading(
    addresses: Sequence[str], options: ReadOptions = COMMITTED, credentials: Credentials | None = None
) -> AsyncIterator[Reader]:
    shown = credentials or Credentials()
    reader = Reader(lambda on_result, on_outage: RotaRecords(addresses, shown, on_result, on_outage, options))
    try:
        yield reader
    finally:
        async with asyncio.timeout(WITHIN_S):
            await reader.records.close()
        assert len(asyncio.all_tasks()) == 1, "nothing goes on after the end"


def play(address: str, story: Story, options: ReadOptions = COMMITTED) -> None:
    async def run() -> None:
        async with Conversation(address) as talk, reading([NOBODY, f"rota://{address}"], options) as reader:
            await story(talk, reader)

    asyncio.run(run())


def test_records_come_in_order_with_all_that_belongs_to_them(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("whole")
        rows = columns.Columns(
            [b"a", None, b""], [None, b"k", b"k"], [1_000, 900, 2_000], [(("h", b"1"), ("n", None)), (), ()]
        )
        payload = columns.pack(rows, 3, 1_000)
        sent = pb.RecordBatch(
            count=3, payload=payload, base_timestamp_ms=1_000, max_timestamp_ms=2_000, producer_id=-1
        )
        await talk.send("whole", sent, batch([b"next"]))
        passage = await reader.read_to(Partition("whole", 0), 4)
        assert [tuple(row) for row in passage.rows] == [
            (0, b"a", None, 1_000, (("h", b"1"), ("n", None))),
            (1, None, b"k", 900, ()),
            (2, b"", b"k", 2_000, ()),
            (3, b"next", None, 1_000, ()),
        ]
        assert passage.bounds == Bounds(0, 4)
        assert all(each.keys is not None for each in passage.batches)

    play(address, story, ReadOptions(read_committed=True, with_keys=True))


def test_a_batch_passes_as_it_was_written_also_from_its_middle(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("middle")
        sent = batch([b"a", b"b", b"c"])
        await talk.send("middle", sent)
        (found,) = (await reader.read(Partition("middle", 0), 2)).batches
        assert (found.first, found.count, found.keys) == (2, 1, None)
        assert isinstance(found.payload, pb.RecordBatch)
        assert (found.payload.base_offset, found.payload.payload) == (0, sent.payload)

    play(address, story)


def test_compressed_batches_are_read_with_as_many_bytes_as_memory_holds(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("compressed")
        sent = [batch([b"v" * 1_000] * 20) for _ in range(8)]
        for each in sent:
            each.codec, each.payload = compress(GZIP, each.payload)
            assert each.codec == GZIP
            await talk.send("compressed", each)
        here, delivery_epoch, offset = Partition("compressed", 0), reader.open(), 0
        found: list[Batch] = []
        while offset < 160:
            read = await reader.read(here, offset, bytes_max=50_000, delivery_epoch=delivery_epoch)
            # One batch more than the memory holds, at most.
            assert sum(each.size for each in read.batches[:-1]) <= 50_000
            found += read.batches
            offset = read.next_offset
        assert [columns_in(content_of(each)).values for each in found] == [[b"v" * 1_000] * 20] * 8

    play(address, story)


def test_the_bounds_of_a_partition_are_returned_at_once_and_only_changes_after_that(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("quiet")
        here, delivery_epoch = Partition("quiet", 0), reader.open()
        first = await reader.read(here, 0, delivery_epoch=delivery_epoch)
        assert (first.batches, first.next_offset, first.bounds) == ([], 0, Bounds(0, 0))
        later = reader.fetch(here, 0, delivery_epoch=delivery_epoch)
        await talk.send("quiet", batch([b"a"]))
        async with asyncio.timeout(WITHIN_S):
            found = await later
        assert not isinstance(found, ReadFailed)
        assert (len(found.batches), found.next_offset) == (1, 1)

    play(address, story)


def test_a_fetch_waits_for_its_minimum_of_bytes(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("minimum")
        here, delivery_epoch = Partition("minimum", 0), reader.open()
        await reader.read(here, 0, delivery_epoch=delivery_epoch)
        waiting = reader.fetch(here, 0, delivery_epoch=delivery_epoch)
        await talk.send("minimum", batch([b"little"]))
        await talk.send("minimum", batch([bytes(2_000)]))
        async with asyncio.timeout(WITHIN_S):
            found = await waiting
        assert not isinstance(found, ReadFailed)
        assert (len(found.batches), found.next_offset) == (2, 2)

    limits = FetchLimits(min_bytes=1_000, max_wait_ms=WITHIN_S * 1000)
    play(address, story, ReadOptions(read_committed=True, with_keys=False, limits=limits))


def test_a_fetch_waits_for_its_minimum_no_longer_than_it_may(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("short-wait")
        here, delivery_epoch = Partition("short-wait", 0), reader.open()
        await reader.read(here, 0, delivery_epoch=delivery_epoch)
        await talk.send("short-wait", batch([b"little"]))
        found = await reader.read(here, 0, delivery_epoch=delivery_epoch)
        assert (len(found.batches), found.next_offset) == (1, 1)

    limits = FetchLimits(min_bytes=4 << 20, max_wait_ms=50)
    play(address, story, ReadOptions(read_committed=True, with_keys=False, limits=limits))


def test_a_response_has_no_more_bytes_than_it_may(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("bounded")
        for _ in range(3):
            await talk.send("bounded", batch([bytes(1_000)]))
        found = await reader.read(Partition("bounded", 0), 0)
        assert (len(found.batches), found.next_offset) == (1, 1)

    limits = FetchLimits(max_bytes=1_500)
    play(address, story, ReadOptions(read_committed=True, with_keys=False, limits=limits))


def test_what_was_aborted_is_passed_over_and_is_no_lag(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("gaps")
        transaction = await Transaction(talk, "gaps").begin()
        await talk.send("gaps", batch([b"before"]))
        for value, commit in ((b"never", False), (b"counts", True), (b"never", False)):
            assert await transaction.send("gaps", value) == codes.NONE
            assert await transaction.end(commit=commit) == codes.NONE
        passage = await reader.read_to(Partition("gaps", 0), 7)
        assert (passage.values, passage.offsets) == ([b"before", b"counts"], [0, 3])
        assert (passage.next_offset, passage.bounds) == (7, Bounds(0, 7))

    play(address, story)


def test_an_open_transaction_ends_what_may_be_read(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("open")
        here, delivery_epoch = Partition("open", 0), reader.open()
        transaction = await Transaction(talk, "open").begin()
        assert await transaction.send("open", b"held") == codes.NONE
        await talk.send("open", batch([b"behind"]))
        assert (await reader.read(here, 0, delivery_epoch=delivery_epoch)).bounds == Bounds(0, 0)
        assert (await reader.records.bounds([here], WITHIN_S)) == {here: Bounds(0, 0)}
        waiting = asyncio.create_task(reader.read_to(here, 3, delivery_epoch=delivery_epoch))
        assert await transaction.end(commit=True) == codes.NONE
        assert (await waiting).values == [b"held", b"behind"]

    play(address, story)


def test_those_who_want_everything_see_what_is_not_committed(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("dirty")
        here = Partition("dirty", 0)
        transaction = await Transaction(talk, "dirty").begin()
        assert await transaction.send("dirty", b"open") == codes.NONE
        assert (await reader.read_to(here, 1)).values == [b"open"]
        assert await reader.records.bounds([here], WITHIN_S) == {here: Bounds(0, 1)}

    play(address, story, UNCOMMITTED)


def test_thousands_of_partitions_are_read_together_and_each_in_order(address: str) -> None:
    partitions = 3_000

    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("wide", partitions)
        everywhere = [Partition("wide", number) for number in range(partitions)]
        passages = [asyncio.create_task(reader.read_to(each, 2)) for each in everywhere]
        for value in (b"a", b"b"):
            for start in range(0, partitions, 500):
                numbers = range(start, start + 500)
                parts = [
                    pb.ProduceRequest.Partition(topic="wide", index=number, batches=[batch([value])])
                    for number in numbers
                ]
                await talk.log.Produce(pb.ProduceRequest(partitions=parts))
        async with asyncio.timeout(WITHIN_S):
            found = await asyncio.gather(*passages)
        assert [passage.partition for passage in found] == everywhere
        assert {tuple(passage.values) for passage in found} == {(b"a", b"b")}

    play(address, story)


def test_who_wants_something_while_others_wait_does_not_wait_for_them(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("busy", 12)
        ends = range(12)
        delivery_epochs = {number: reader.open() for number in ends}
        waiting = {
            number: asyncio.create_task(
                reader.read_to(Partition("busy", number), 1, delivery_epoch=delivery_epochs[number])
            )
            for number in ends
        }
        # One after the other each gets a record, and reads on at once.
        for turn in range(5):
            for number in ends:
                await talk.send("busy", batch([b"%d" % turn]), index=number)
                async with asyncio.timeout(WITHIN_S / 3):
                    passage = await waiting[number]
                assert passage.values == [b"%d" % turn]
                waiting[number] = asyncio.create_task(
                    reader.read_to(
                        Partition("busy", number),
                        turn + 2,
                        offset=turn + 1,
                        delivery_epoch=delivery_epochs[number],
                    )
                )
        for number, task in waiting.items():
            reader.records.stop(delivery_epochs[number])
            task.cancel()
        await asyncio.wait(waiting.values())

    play(address, story)


def test_who_stops_hears_nothing_more(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("stopped", 2)
        here, there = Partition("stopped", 0), Partition("stopped", 1)
        stopped, kept = reader.open(), reader.open()
        await reader.read(here, 0, delivery_epoch=stopped)
        await reader.read(there, 0, delivery_epoch=kept)
        for_nobody = reader.fetch(here, 0, delivery_epoch=stopped)
        for_us = reader.fetch(there, 0, delivery_epoch=kept)
        reader.records.stop(stopped)
        reader.records.stop(stopped)
        for number in (0, 1):
            await talk.send("stopped", batch([b"a"]), index=number)
        async with asyncio.timeout(WITHIN_S):
            await for_us
        assert not for_nobody.done()
        assert reader.unexpected == []

    play(address, story)


def test_another_fetch_of_a_partition_ends_the_one_before_in_silence(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("sought")
        await talk.send("sought", batch([b"a", b"b", b"c"]))
        here, before = Partition("sought", 0), reader.open()
        await reader.read_to(here, 3, delivery_epoch=before)
        waits = reader.fetch(here, 3, delivery_epoch=before)
        assert (await reader.read_to(here, 3, offset=1)).values == [b"b", b"c"]
        assert not waits.done()

    play(address, story)


def test_an_offset_that_is_gone_is_out_of_range(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("short")
        here = Partition("short", 0)
        await talk.send("short", batch([b"a", b"b", b"c"]))
        deleted = pb.DeleteRecordsRequest.Partition(topic="short", index=0, before_offset=2)
        await talk.log.DeleteRecords(pb.DeleteRecordsRequest(partitions=[deleted]))
        for offset in (1, 4):
            failed = await reader.failure(here, offset)
            assert failed.fetch_error is FetchError.OUT_OF_RANGE
            assert failed.message == (
                f"offset {offset} is out of range, the log has 2 to 3; reset the group's offsets, "
                "or set what the group does with an offset out of range"
            )
        assert (await reader.read_to(here, 3, offset=2)).values == [b"c"]
        assert await reader.records.bounds([here], WITHIN_S) == {here: Bounds(2, 3)}

    play(address, story)


def test_a_topic_that_does_not_exist_is_unknown(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("small", 1)
        for partition in (Partition("missing", 0), Partition("small", 1)):
            failed = await reader.failure(partition, 0)
            assert failed.fetch_error is FetchError.UNKNOWN_TOPIC
            assert failed.message.startswith("it does not exist; create the topic")

    play(address, story)


def test_partitions_that_a_topic_grows_are_read(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("growing", 1)
        grown = Partition("growing", 1)
        assert (await reader.failure(grown, 0)).fetch_error is FetchError.UNKNOWN_TOPIC
        more = pb.CreatePartitionsRequest.Topic(name="growing", partitions=2)
        await talk.log.CreatePartitions(pb.CreatePartitionsRequest(topics=[more]))
        await talk.send("growing", batch([b"a"]), index=1)
        assert (await reader.read_to(grown, 1)).values == [b"a"]

    play(address, story)


def test_a_deleted_topic_is_unknown_to_those_who_wait_for_it(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("deleted")
        here, delivery_epoch = Partition("deleted", 0), reader.open()
        await reader.read(here, 0, delivery_epoch=delivery_epoch)
        waiting = asyncio.create_task(reader.failure(here, 0, delivery_epoch=delivery_epoch))
        await talk.log.DeleteTopics(pb.DeleteTopicsRequest(names=["deleted"]))
        failed = await waiting
        assert failed.fetch_error is FetchError.UNKNOWN_TOPIC
        assert failed.message.startswith("it was deleted")

    play(address, story)


def test_a_topic_made_anew_is_another_one(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("anew")
        await talk.send("anew", batch([b"old", b"old"]))
        here, delivery_epoch = Partition("anew", 0), reader.open()
        await reader.read_to(here, 1, delivery_epoch=delivery_epoch)
        await talk.log.DeleteTopics(pb.DeleteTopicsRequest(names=["anew"]))
        await talk.make("anew")
        await talk.send("anew", batch([b"new", b"new", b"new"]))
        failed = await reader.failure(here, 2, delivery_epoch=delivery_epoch)
        assert failed.fetch_error is FetchError.OTHER_TOPIC
        # Whoever begins with it reads it.
        assert (await reader.read_to(here, 3)).values == [b"new"] * 3

    play(address, story)


def test_bounds_and_times_are_looked_up_where_there_are_any(address: str) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("times", 2)
        await talk.send("times", batch([b"a", b"b"], times=[1_000, 2_000]))
        here, empty, missing = Partition("times", 0), Partition("times", 1), Partition("nowhere", 0)
        records = reader.records
        assert await records.bounds([here, empty, missing], WITHIN_S) == {
            here: Bounds(0, 2),
            empty: Bounds(0, 0),
        }
        asked = {here: 1_001, empty: 0, missing: 0}
        assert await records.at_times(asked, WITHIN_S) == {here: OffsetAndTimestamp(1, 2_000)}
        assert await records.at_times({here: 2_001}, WITHIN_S) == {}

    play(address, story)


def test_records_that_an_old_log_took_and_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    async def story(talk: Conversation, reader: Reader) -> None:
        await talk.make("damaged")
        await talk.send("damaged", pb.RecordBatch(count=2, payload=b"\x04b", producer_id=-1))
        assert (await reader.failure(Partition("damaged", 0), 0)).fetch_error is FetchError.CORRUPT

    with serving(tmp_path, program="tests.support.unchecked_log") as coordinator:
        play(coordinator.address, story, ReadOptions(read_committed=True, with_keys=True))


def test_a_log_that_dies_is_read_on_when_it_is_back_and_said_once(tmp_path: Path) -> None:
    port = free_port()
    coordinator = Coordinator(tmp_path)
    coordinator.start(f"--listen=127.0.0.1:{port}")

    async def story() -> None:
        here = Partition("lasting", 0)
        async with reading([coordinator.address]) as reader:
            delivery_epoch = reader.open()
            async with Conversation(coordinator.address) as talk:
                await talk.send("lasting", batch([b"a"]))
                assert (await reader.read_to(here, 1, delivery_epoch=delivery_epoch)).values == [b"a"]
            waiting = asyncio.create_task(reader.read_to(here, 2, offset=1, delivery_epoch=delivery_epoch))
            await asyncio.to_thread(coordinator.kill)
            assert "cannot be reached" in await reader.outage()
            with pytest.raises(Unreachable):
                await reader.records.bounds([here], 1)
            await asyncio.to_thread(coordinator.start, f"--listen=127.0.0.1:{port}")
            assert await reader.outage() == ""
            async with Conversation(coordinator.address) as talk:
                await talk.send("lasting", batch([b"b"]))
            assert (await waiting).values == [b"b"]
            assert reader.outages.empty()

    try:
        coordinator.make_topic("lasting", 1)
        asyncio.run(story())
    finally:
        coordinator.stop()


def test_a_topic_that_is_not_for_us_is_denied(tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    for file in (tokens, token):
        file.touch(mode=0o600)
    tokens.write_text("few plain:few-of-them shop.* consume:shop.*\n")
    token.write_text("few-of-them")
    plain = Coordinator(tmp_path, name="before")
    plain.start()
    for topic in ("shop.orders", "bank"):
        plain.make_topic(topic)
    plain.stop()

    async def story(address: str) -> None:
        async with reading([address], credentials=Credentials(token_file=token)) as reader:
            assert (await reader.failure(Partition("bank", 0), 0)).fetch_error is FetchError.DENIED
            assert (await reader.read(Partition("shop.orders", 0), 0)).bounds == Bounds(0, 0)
            with pytest.raises(Refused, match="not authorized to read topic bank"):
                await reader.records.bounds([Partition("bank", 0)], WITHIN_S)
        async with reading([address]) as stranger:
            waiting = stranger.fetch(Partition("shop.orders", 0), 0)
            assert "cannot authenticate this client" in await stranger.outage()
            assert not waiting.done()

    with serving(tmp_path, [*QUICK, f"--tokens-file={tokens}"]) as coordinator:
        asyncio.run(story(coordinator.address))
