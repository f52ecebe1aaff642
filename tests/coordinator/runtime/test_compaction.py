"""A log that is written for months stays as short as what it says, and that never loses anything."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from rota_coordinator.store.port import StoreError
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.coordinator.virtual import Memory, Virtual, play

PARTITIONS = 100
COMMITS = 400
AT_ONCE = 20


def commit(offset: int) -> pb.CommitOffsetsRequest:
    """A commit of everything that the group has."""
    partitions = [pb.PartitionOffset(index=index, offset=offset) for index in range(PARTITIONS)]
    return pb.CommitOffsetsRequest(
        group_id="g", generation_id=-1, topics=[pb.TopicOffsets(name="t", partitions=partitions)]
    )


async def committed(virtual: Virtual) -> set[int]:
    """The offsets of all partitions."""
    read = await virtual.send(pb.FetchOffsetsRequest(group_id="g", all=True)).answer()
    assert isinstance(read, pb.FetchOffsetsResponse)
    assert len(read.topics[0].partitions) == PARTITIONS
    return {partition.offset for partition in read.topics[0].partitions}


def longest(store: Memory) -> int:
    """The length of the longest log."""
    return max(map(len, store.written.values()))


def test_a_log_is_compacted_while_it_is_written() -> None:
    async def story() -> None:
        virtual = await Virtual().start()
        # Some are always on their way to the disk, also when the snapshot is made.
        for first in range(0, COMMITS, AT_ONCE):
            commits = [virtual.send(commit(offset)) for offset in range(first, first + AT_ONCE)]
            await commits[0].answer()
        await virtual.pass_time(10)
        assert virtual.store.compactions == 3
        assert longest(virtual.store) < COMMITS * PARTITIONS / 3
        assert await committed(virtual) == {COMMITS - 1}
        restarted = await Virtual(store=virtual.store).start()
        assert await committed(restarted) == {COMMITS - 1}

    play(story)


@dataclass(slots=True)
class Unwilling(Memory):
    """A store that cannot compact."""

    @override
    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        self.compactions += 1
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(StoreError("the disk is full"))
        return refused


def test_a_compaction_that_fails_is_said_and_nothing_is_lost() -> None:
    async def story() -> None:
        virtual = await Virtual(store=Unwilling()).start()
        for offset in range(COMMITS):
            await virtual.send(commit(offset)).answer()
        assert longest(virtual.store) >= COMMITS * PARTITIONS
        assert virtual.store.compactions == len(virtual.reports) == 3
        assert "the disk is full; its log was not compacted" in virtual.reports[0]
        assert await committed(virtual) == {COMMITS - 1}

    play(story)
