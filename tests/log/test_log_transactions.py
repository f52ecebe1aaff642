"""Transactions as a producer meets them: a real server, and readers who look at what is committed."""

import asyncio
from collections.abc import Iterator

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.conversation import (
    COMMITTED,
    UNCOMMITTED,
    Conversation,
    Transaction,
    batch,
    committed,
    values_of,
    write_story,
)
from tests.support.coordinator import serving

pytestmark = pytest.mark.process

LONG_MS = 20_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all."""
    with serving(tmp_path_factory.mktemp("transactions")) as coordinator:
        yield coordinator.address


async def join(talk: Conversation, group: str, member_id: str = "") -> codes.JoinGroupResponse:
    """A member alone in its group, with everything assigned to it: a new one, or one that joins again."""
    protocol = codes.Protocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")
    request = codes.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    request.member_id = member_id or (await talk.groups.JoinGroup(request)).member_id
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

    write_story(address, story)


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

    write_story(address, story)


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

    write_story(address, story)


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

    write_story(address, story)


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

    write_story(address, story)


def test_a_newer_generation_aborts_a_transaction_although_its_member_is_still_there(address: str) -> None:
    async def story(talk: Conversation) -> None:
        await talk.make("renewed")
        first = await join(talk, "renewing")
        copier = await Transaction(talk, "renewing-0").begin()
        assert (
            await copier.bring("renewing", 9, "renewed", first.generation_id, first.member_id) == codes.NONE
        )
        second = await join(talk, "renewing", first.member_id)
        assert (second.member_id, second.generation_id) == (first.member_id, first.generation_id + 1)
        assert await copier.end(commit=True) == codes.ILLEGAL_GENERATION
        assert await committed(talk, "renewing", "renewed") == -1

    write_story(address, story)


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

    write_story(address, story)
