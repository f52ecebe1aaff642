"""The Log service as its callers meet it: a real server on a real file."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.conversation import Conversation, Transaction, batch, committed, values_of, write_story
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.web import get

pytestmark = pytest.mark.process

LONG_MS = 20_000


def test_requests_to_the_log_are_counted(tmp_path: Path) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("counted")
        await talk.send("counted", batch([b"a"]))
        await talk.send("missing", batch([b"a"]))
        await talk.read("counted")

    with serving(tmp_path) as coordinator:
        write_story(coordinator.address, story)
        page = get(coordinator.http, "/metrics").page
        for api, error in (
            ("CreateTopics", "NONE"),
            ("Produce", "NONE"),
            ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"),
            ("Fetch", "NONE"),
        ):
            assert f'rota_coordinator_requests_total{{api="{api}",error="{error}"}} 1.0' in page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all that do not kill it."""
    with serving(tmp_path_factory.mktemp("log")) as coordinator:
        yield coordinator.address


def test_what_is_appended_is_read_in_order(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("ordered", partitions=2)
        first = await talk.send("ordered", batch([b"a", b"b"]), batch([b"c"]))
        second = await talk.send("ordered", batch([b"d"]))
        other = await talk.send("ordered", batch([b"x"]), index=1)
        assert (first.base_offset, second.base_offset, other.base_offset) == (0, 3, 0)
        assert await talk.values("ordered") == [b"a", b"b", b"c", b"d"]
        page = await talk.read("ordered", 1)
        # Whole batches come: the reader leaves out what lies before its offset.
        assert (page.batches[0].base_offset, values_of(page.batches[0])) == (0, [b"a", b"b"])
        assert (page.next_offset, page.high_watermark, page.last_stable_offset) == (4, 4, 4)

    write_story(address, story)


def test_a_batch_that_cannot_be_read_is_refused_with_a_message_and_its_neighbours_are_appended(
    address: str,
) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("poisoned", partitions=2)
        bad = batch([b"a", b"b"])
        bad.payload = b"garbage"
        parts = [
            pb.ProduceRequest.Partition(topic="poisoned", index=0, batches=[batch([b"a"]), bad]),
            pb.ProduceRequest.Partition(topic="poisoned", index=1, batches=[batch([b"good"])]),
        ]
        refused, taken = (await talk.log.Produce(pb.ProduceRequest(partitions=parts))).partitions
        assert refused.error_code == codes.CORRUPT_MESSAGE
        assert "columns of an unknown kind" in refused.error_message
        assert (taken.error_code, taken.error_message, taken.base_offset) == (codes.NONE, "", 0)
        assert await talk.values("poisoned", index=0) == []
        assert await talk.values("poisoned", index=1) == [b"good"]

    write_story(address, story)


def test_large_batches_of_many_partitions_come_in_answers_that_can_be_sent(address: str) -> None:
    async def story(talk: Conversation) -> None:
        partitions, largest = 5, batch([b"v" * ((1 << 20) - 10)])
        assert len(largest.payload) == 1 << 20
        await talk.make("largest", partitions=partitions)
        for index in range(partitions):
            await talk.send("largest", largest, index=index)
        offsets = dict.fromkeys(range(partitions), 0)
        fetches = 0
        while min(offsets.values()) == 0:
            asked = pb.FetchRequest()
            for index, offset in offsets.items():
                asked.partitions.add(topic="largest", index=index, offset=offset)
            for part in (await talk.log.Fetch(asked)).partitions:
                assert part.error_code == codes.NONE
                offsets[part.index] = part.next_offset
            fetches += 1
        assert fetches == 2

    write_story(address, story)


def test_what_is_not_there_has_an_error_of_its_own(address: str) -> None:
    async def story(talk: Conversation) -> None:
        topic_id = await talk.make("there")
        assert (await talk.read("nowhere")).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
        assert (await talk.read("there", index=1)).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
        assert (await talk.read("there", 1)).error_code == codes.OFFSET_OUT_OF_RANGE
        assert (await talk.send("nowhere", batch([b"a"]))).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
        await talk.log.DeleteTopics(pb.DeleteTopicsRequest(names=["there"]))
        assert (await talk.read("there")).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
        assert await talk.make("there") != topic_id
        partition = pb.ProduceRequest.Partition(topic="there", batches=[batch([b"a"])], topic_id=topic_id)
        reply = await talk.log.Produce(pb.ProduceRequest(partitions=[partition]))
        assert reply.partitions[0].error_code == codes.UNKNOWN_TOPIC_ID
        assert await talk.values("there") == []

    write_story(address, story)


def test_an_offset_of_a_topic_that_was_made_again_is_not_committed_to_the_new_one(address: str) -> None:
    async def story(talk: Conversation) -> None:
        old = await talk.make("again")
        await talk.log.DeleteTopics(pb.DeleteTopicsRequest(names=["again"]))
        new = await talk.make("again")
        errors = []
        for topic_id, offset in ((old, 5), (new, 6), (b"", 7)):
            request = codes.CommitOffsetsRequest(group_id="reader", generation_id=-1)
            topic = request.topics.add(name="again", topic_id=topic_id)
            topic.partitions.add(index=0, offset=offset, leader_epoch=-1)
            reply = await talk.groups.CommitOffsets(request)
            errors.append(reply.topics[0].partitions[0].error_code)
        assert errors == [codes.UNKNOWN_TOPIC_ID, codes.NONE, codes.NONE]
        assert await committed(talk, "reader", "again") == 7

    write_story(address, story)


def test_a_reader_who_waits_is_woken_by_the_append(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("awaited")
        reading = asyncio.create_task(
            talk.read("awaited", request=pb.FetchRequest(max_wait_ms=LONG_MS, min_bytes=1))
        )
        done, _ = await asyncio.wait({reading}, timeout=0.3)
        assert not done
        await talk.send("awaited", batch([b"now"]))
        async with asyncio.timeout(LONG_MS / 1000 / 4):
            page = await reading
        assert values_of(page.batches[0]) == [b"now"]

    write_story(address, story)


def test_a_reader_who_waits_is_woken_when_the_topic_is_deleted(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("doomed")
        reading = asyncio.create_task(
            talk.read("doomed", request=pb.FetchRequest(max_wait_ms=LONG_MS, min_bytes=1))
        )
        done, _ = await asyncio.wait({reading}, timeout=0.3)
        assert not done
        await talk.log.DeleteTopics(pb.DeleteTopicsRequest(names=["doomed"]))
        async with asyncio.timeout(LONG_MS / 1000 / 4):
            page = await reading
        assert page.error_code == codes.UNKNOWN_TOPIC_OR_PARTITION

    write_story(address, story)


def test_a_reader_that_waits_in_vain_receives_an_empty_response(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("silent")
        page = await talk.read("silent", request=pb.FetchRequest(max_wait_ms=200))
        assert (page.error_code, list(page.batches), page.next_offset) == (codes.NONE, [], 0)

    write_story(address, story)


def test_a_page_has_as_much_as_is_asked_for_and_one_batch_at_least(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("large")
        for number in range(6):
            await talk.send("large", batch([b"%d" % number * 1_000_000]))
        assert len((await talk.read("large", request=pb.FetchRequest(max_bytes=10))).batches) == 1
        assert len((await talk.read("large", request=pb.FetchRequest(max_bytes=2_100_000))).batches) == 2
        whole = await talk.read("large")
        assert 1 < len(whole.batches) < 6, "an answer has at most 4 MiB"
        assert [value[:1] for value in await talk.values("large")] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    write_story(address, story)


def test_offsets_are_found_by_what_they_stand_for(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("times")
        await talk.send("times", batch([b"a", b"b", b"c"], times=[1_000, 3_000, 2_000]))
        await talk.send("times", batch([b"d"], 5_000))
        assert [(await talk.offset_at("times", time))[0] for time in (-2, -1)] == [0, 4]
        assert await talk.offset_at("times", 1) == (0, 1_000)
        assert await talk.offset_at("times", 1_001) == (1, 3_000)
        assert await talk.offset_at("times", 3_001) == (3, 5_000)
        assert await talk.offset_at("times", 5_001) == (-1, -1)

    write_story(address, story)


def test_a_time_between_records_and_the_end_of_their_transaction_is_found(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("ended")
        sender = await Transaction(talk, "ender").begin()
        assert await sender.send("ended", b"early") == codes.NONE
        assert await sender.end(commit=True) == codes.NONE
        assert await talk.offset_at("ended", 1_000) == (0, 1_000)
        offset, timestamp_ms = await talk.offset_at("ended", 1_001)
        assert offset == 1
        assert timestamp_ms > 1_001

    write_story(address, story)


def test_records_before_an_offset_can_be_deleted(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("short")
        for number in range(4):
            await talk.send("short", batch([b"%d" % number]))
        asked = pb.DeleteRecordsRequest.Partition(topic="short", index=0, before_offset=3)
        reply = await talk.log.DeleteRecords(pb.DeleteRecordsRequest(partitions=[asked]))
        assert reply.partitions[0].log_start_offset == 3
        assert (await talk.read("short", 2)).error_code == codes.OFFSET_OUT_OF_RANGE
        assert (await talk.offset_at("short", -2))[0] == 3
        assert (await talk.send("short", batch([b"next"]))).base_offset == 4

    write_story(address, story)


def test_retention_takes_what_is_too_much_and_what_is_too_old(tmp_path: Path) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("much", retention_bytes=3_500)
        await talk.make("old", retention_ms=60_000)
        await talk.make("clock")
        now_ms = (await talk.send("clock", batch([b""]))).log_append_time_ms
        for number in range(10):
            await talk.send("much", batch([b"%d" % number * 1_000], now_ms))
            await talk.send("old", batch([b"%d" % number], now_ms - (100_000 if number < 6 else 0)))
        async with asyncio.timeout(20):
            while (await talk.offset_at("much", -2))[0] != 6 or (await talk.offset_at("old", -2))[0] != 6:
                await asyncio.sleep(0.05)
        page = await talk.read("much", 6)
        assert [values_of(each)[0][:1] for each in page.batches] == [b"6", b"7", b"8", b"9"]

    with serving(tmp_path, (*QUICK, "--log-retention-check-interval-ms=100")) as coordinator:
        write_story(coordinator.address, story)


def test_everything_is_there_after_a_crash(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.start()

    async def before(talk: Conversation) -> None:
        await talk.make("kept")
        await talk.make("source")
        copier = await Transaction(talk, "copier").begin()
        for commit, value in ((True, b"yes"), (False, b"no")):
            assert await copier.send("kept", value) == codes.NONE
            assert await copier.bring("g", 10, "source") == codes.NONE
            assert await copier.end(commit=commit) == codes.NONE
        await talk.send("kept", batch([b"written"]), acks=pb.ACKS_WRITTEN)
        assert await copier.send("kept", b"open") == codes.NONE
        assert await copier.bring("g", 20, "source") == codes.NONE
        open_ones.append(copier)

    async def after(talk: Conversation) -> None:
        assert await talk.values("kept") == [b"yes", b"written"]
        copier = Transaction(talk, "copier")
        copier.id, copier.epoch = open_ones[0].id, open_ones[0].epoch
        assert await copier.send("kept", b"open too", 1) == codes.NONE
        assert await copier.end(commit=True) == codes.NONE
        assert await talk.values("kept") == [b"yes", b"written", b"open", b"open too"]
        assert await committed(talk, "g", "source") == 20

    open_ones: list[Transaction] = []
    try:
        write_story(coordinator.address, before)
        coordinator.kill()
        coordinator.start()
        write_story(coordinator.address, after)
    finally:
        coordinator.stop()


SENDING = pb.ProduceRequest.Partition
READING = pb.FetchRequest.Partition
LOOKING = pb.ListOffsetsRequest.Partition
DELETING = pb.DeleteRecordsRequest.Partition
MARKER = pb.RecordBatch(count=1, control=True)
UNKNOWN_ACKS = pb.ProduceRequest.FromString(b"\x10\x07")
UNKNOWN_ISOLATION = pb.FetchRequest.FromString(b"\x28\x09")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (pb.ProduceRequest(partitions=[SENDING(topic="t", index=-1)]), "must be at least 0"),
        (UNKNOWN_ACKS, "unknown acks 7"),
        (
            pb.ProduceRequest(partitions=[SENDING(topic="t", batches=[pb.RecordBatch()])]),
            "expected at least 1",
        ),
        (
            pb.ProduceRequest(partitions=[SENDING(topic="t", batches=[MARKER])]),
            "control batches are written by the log only",
        ),
        (pb.FetchRequest(max_wait_ms=-1), "max_wait_ms must be at least 0, not -1"),
        (pb.FetchRequest(partitions=[READING(topic="t", offset=-5)]), "offset must be at least 0, not -5"),
        (UNKNOWN_ISOLATION, "unknown isolation level 9"),
        (
            pb.ListOffsetsRequest(partitions=[LOOKING(topic="t", timestamp_ms=-3)]),
            "timestamp_ms must be at least -2",
        ),
        (
            pb.DeleteRecordsRequest(partitions=[DELETING(topic="t", before_offset=-2)]),
            "before_offset must be at least -1",
        ),
        (pb.EndTransactionRequest(), "transactional_id must not be empty"),
        (pb.InitProducerRequest(transactional_id="t" * 2_000), "at most 1024"),
        (pb.DescribeTopicsRequest(names=["t"] * 1_001), "at most 1000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_requests_are_refused_with_a_message(
    address: str, request_: Message, message: str
) -> None:
    async def story(talk: Conversation) -> None:
        method = type(request_).__name__.removesuffix("Request")
        with pytest.raises(grpc.aio.AioRpcError, match=message) as refused:
            await getattr(talk.log, method)(request_)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    write_story(address, story)
