"""The Log service as its callers meet it: a real server on a real file."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.conversation import COMMITTED, UNCOMMITTED, Conversation, Producer, batch, values_of
from tests.support.coordinator import QUICK, Coordinator, serving

pytestmark = pytest.mark.process

Story = Callable[[Conversation], Coroutine[None, None, None]]
LONG_MS = 20_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all that do not kill it."""
    with serving(tmp_path_factory.mktemp("log")) as coordinator:
        yield coordinator.address


def tell(address: str, story: Story) -> None:
    """Run a story at a server."""

    async def run() -> None:
        async with Conversation(address) as talk:
            await story(talk)

    asyncio.run(run())


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

    tell(address, story)


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

    tell(address, story)


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

    tell(address, story)


def test_a_reader_who_waits_in_vain_is_told_so(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("silent")
        page = await talk.read("silent", request=pb.FetchRequest(max_wait_ms=200))
        assert (page.error_code, list(page.batches), page.next_offset) == (codes.NONE, [], 0)

    tell(address, story)


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

    tell(address, story)


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

    tell(address, story)


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

    tell(address, story)


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

    tell(address, story)


class Transaction:
    """A producer with a transactional id, and its words."""

    def __init__(self, talk: Conversation, name: str) -> None:
        self._talk = talk
        self.name = name
        self.id = self.epoch = -1

    async def begin(self, timeout_ms: int = 60_000) -> "Transaction":
        """InitProducer."""
        request = pb.InitProducerRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        made = await self._talk.log.InitProducer(request)
        assert made.error_code == codes.NONE
        self.id, self.epoch = made.producer_id, made.producer_epoch
        return self

    async def send(self, topic: str, value: bytes, sequence: int = 0) -> int:
        """The error of a batch in the transaction."""
        sent = batch([value], producer=Producer(self.id, self.epoch, sequence), transactional=True)
        return (await self._talk.send(topic, sent, transactional_id=self.name)).error_code

    async def end(self, *, commit: bool) -> int:
        """EndTransaction."""
        request = pb.EndTransactionRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, commit=commit
        )
        reply = await self._talk.log.EndTransaction(request)
        if reply.producer_id or reply.producer_epoch:
            self.id, self.epoch = reply.producer_id, reply.producer_epoch
        return reply.error_code

    async def bring(self, group: str, offset: int, topic: str, generation: int = -1, member: str = "") -> int:
        """Offsets of a group, as part of the transaction; the first error."""
        add = pb.AddOffsetsToTransactionRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
            generation_id=generation,
            member_id=member,
        )
        added = await self._talk.log.AddOffsetsToTransaction(add)
        if added.error_code:
            return added.error_code
        partition = codes.PartitionOffset(index=0, offset=offset, leader_epoch=-1)
        request = codes.TxnCommitOffsetsRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
            generation_id=generation,
            member_id=member,
            topics=[codes.TopicOffsets(name=topic, partitions=[partition])],
        )
        reply = await self._talk.groups.TxnCommitOffsets(request)
        return reply.error_code or reply.topics[0].partitions[0].error_code


async def committed(talk: Conversation, group: str, topic: str) -> int:
    """The group's offset in partition 0, when no transaction holds it."""
    request = codes.FetchOffsetsRequest(group_id=group, require_stable=True)
    request.topics.add(name=topic, partitions=[0])
    reply = await talk.groups.FetchOffsets(request)
    assert reply.topics[0].partitions[0].error_code == codes.NONE
    return reply.topics[0].partitions[0].offset


def test_records_and_offsets_of_a_transaction_count_together(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("source")
        await talk.make("target")
        copier = await Transaction(talk, "copier").begin()
        assert await copier.send("target", b"aborted") == codes.NONE
        assert await copier.bring("copies", 5, "source") == codes.NONE
        assert await talk.values("target") == []
        assert await talk.values("target", UNCOMMITTED) == [b"aborted"]
        assert await copier.end(commit=False) == codes.NONE
        assert await talk.values("target") == []
        assert await committed(talk, "copies", "source") == -1

        assert await copier.send("target", b"committed") == codes.NONE
        assert await copier.bring("copies", 7, "source") == codes.NONE
        assert await copier.end(commit=True) == codes.NONE
        assert await talk.values("target") == [b"committed"]
        assert await committed(talk, "copies", "source") == 7
        assert await talk.values("target", UNCOMMITTED) == [b"aborted", b"committed"]

    tell(address, story)


def test_an_open_transaction_holds_readers_of_what_is_committed(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("held")
        slow = await Transaction(talk, "slow").begin()
        assert await slow.send("held", b"first") == codes.NONE
        await talk.send("held", batch([b"second"]))
        page = await talk.read("held", request=pb.FetchRequest(isolation_level=COMMITTED))
        assert (page.last_stable_offset, page.high_watermark, list(page.batches)) == (0, 2, [])
        assert (await talk.offset_at("held", -1, COMMITTED))[0] == 0
        reading = asyncio.create_task(
            talk.read("held", request=pb.FetchRequest(isolation_level=COMMITTED, max_wait_ms=LONG_MS))
        )
        assert await slow.end(commit=True) == codes.NONE
        assert [value for each in (await reading).batches for value in values_of(each)] == [
            b"first",
            b"second",
        ]

    tell(address, story)


def test_a_newer_producer_of_the_same_id_fences_the_older_one(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("fenced")
        old = await Transaction(talk, "same").begin()
        assert await old.send("fenced", b"lost") == codes.NONE
        new = await Transaction(talk, "same").begin()
        assert await old.send("fenced", b"late", 1) == codes.INVALID_PRODUCER_EPOCH
        assert await old.end(commit=True) == codes.PRODUCER_FENCED
        assert await new.send("fenced", b"kept") == codes.NONE
        assert await new.end(commit=True) == codes.NONE
        assert await talk.values("fenced") == [b"kept"]

    tell(address, story)


def test_a_silent_producer_loses_its_transaction(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("forgotten")
        silent = await Transaction(talk, "silent").begin(timeout_ms=300)
        assert await silent.send("forgotten", b"never") == codes.NONE
        await talk.send("forgotten", batch([b"other"]))
        page = await talk.read(
            "forgotten", request=pb.FetchRequest(isolation_level=COMMITTED, max_wait_ms=LONG_MS)
        )
        assert [value for each in page.batches for value in values_of(each)] == [b"other"]
        assert await silent.end(commit=True) == codes.PRODUCER_FENCED

    tell(address, story)


def test_the_end_of_a_transaction_asks_the_group_again(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("input")
        await talk.make("output")
        first = await join(talk, "pipeline")
        copier = await Transaction(talk, "pipeline-0").begin()
        assert await copier.send("output", b"late") == codes.NONE
        assert await copier.bring("pipeline", 9, "input", first.generation_id, first.member_id) == codes.NONE
        await leave(talk, "pipeline", first.member_id)
        second = await join(talk, "pipeline")
        assert await copier.end(commit=True) == codes.UNKNOWN_MEMBER_ID
        assert await talk.values("output") == []
        assert await committed(talk, "pipeline", "input") == -1

        assert await copier.send("output", b"right") == codes.NONE
        assert (
            await copier.bring("pipeline", 3, "input", second.generation_id, second.member_id) == codes.NONE
        )
        assert await copier.end(commit=True) == codes.NONE
        assert await talk.values("output") == [b"right"]
        assert await committed(talk, "pipeline", "input") == 3

    tell(address, story)


async def join(talk: Conversation, group: str) -> codes.JoinGroupResponse:
    """A member alone in its group, with everything assigned to it."""
    protocol = codes.Protocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")
    request = codes.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    request.member_id = (await talk.groups.JoinGroup(request)).member_id
    joined = await talk.groups.JoinGroup(request)
    assert joined.error_code == codes.NONE
    sync = codes.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[codes.Assignment(member_id=joined.member_id, assignment=b"")],
    )
    assert (await talk.groups.SyncGroup(sync)).error_code == codes.NONE
    return joined


async def leave(talk: Conversation, group: str, member_id: str) -> None:
    """The member goes."""
    member = codes.LeavingMember(member_id=member_id)
    await talk.groups.LeaveGroup(codes.LeaveGroupRequest(group_id=group, members=[member]))


def test_offsets_without_an_open_transaction_are_refused(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("untouched")
        lonely = await Transaction(talk, "lonely").begin()
        partition = codes.PartitionOffset(index=0, offset=1, leader_epoch=-1)
        request = codes.TxnCommitOffsetsRequest(
            transactional_id="lonely",
            producer_id=lonely.id,
            producer_epoch=lonely.epoch,
            group_id="anybody",
            generation_id=-1,
            topics=[codes.TopicOffsets(name="untouched", partitions=[partition])],
        )
        reply = await talk.groups.TxnCommitOffsets(request)
        assert reply.topics[0].partitions[0].error_code == codes.INVALID_TXN_STATE
        assert await lonely.end(commit=True) == codes.INVALID_TXN_STATE

    tell(address, story)


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
        tell(coordinator.address, story)


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
        tell(coordinator.address, before)
        coordinator.kill()
        coordinator.start()
        tell(coordinator.address, after)
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
    ("request_", "sentence"),
    [
        (pb.ProduceRequest(partitions=[SENDING(topic="t", index=-1)]), "not negative"),
        (UNKNOWN_ACKS, "no kind of acks"),
        (pb.ProduceRequest(partitions=[SENDING(topic="t", batches=[pb.RecordBatch()])]), "one at least"),
        (pb.ProduceRequest(partitions=[SENDING(topic="t", batches=[MARKER])]), "marker"),
        (pb.FetchRequest(max_wait_ms=-1), "max_wait_ms is -1"),
        (pb.FetchRequest(partitions=[READING(topic="t", offset=-5)]), "offset is -5"),
        (UNKNOWN_ISOLATION, "no isolation level"),
        (pb.ListOffsetsRequest(partitions=[LOOKING(topic="t", timestamp_ms=-3)]), "timestamp_ms is -3"),
        (pb.DeleteRecordsRequest(partitions=[DELETING(topic="t", before_offset=-2)]), "before_offset is -2"),
        (pb.EndTransactionRequest(), "transactional_id is empty"),
        (pb.InitProducerRequest(transactional_id="t" * 2_000), "at most 1024"),
        (pb.DescribeTopicsRequest(names=["t"] * 1_001), "at most 1000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_in_a_sentence(address: str, request_: Message, sentence: str) -> None:
    async def story(talk: Conversation) -> None:
        method = type(request_).__name__.removesuffix("Request")
        with pytest.raises(grpc.aio.AioRpcError, match=sentence) as refused:
            await getattr(talk.log, method)(request_)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    tell(address, story)
