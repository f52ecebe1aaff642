"""fsync fails in the kernel, with EIO: nothing is acknowledged from then on, and all that was before is there after a restart."""

import asyncio
import signal
from pathlib import Path

import grpc.aio
import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.log.conversation import Conversation, batch
from tests.security.fsync_server import FROM_THE_START, SAID
from tests.support.coordinator import QUICK, Coordinator
from tests.support.processes import ProcessFailed
from tests.support.web import get

pytestmark = pytest.mark.process
GROUPS = [f"g-{number}" for number in range(4)]
BEFORE, TRIES = 5, 3
WITHIN_S = 60


async def is_committed(talk: Conversation, group: str, offset: int) -> bool:
    """Return whether a commit is acknowledged."""
    partition = pb.PartitionOffset(index=0, offset=offset)
    request = pb.CommitOffsetsRequest(
        group_id=group, generation_id=-1, topics=[pb.TopicOffsets(name="t", partitions=[partition])]
    )
    try:
        reply = await talk.groups.CommitOffsets(request)
    except grpc.aio.AioRpcError:
        return False
    return not reply.error_code and not reply.topics[0].partitions[0].error_code


async def is_appended(talk: Conversation, value: bytes) -> bool:
    """Return whether a record is acknowledged."""
    try:
        return not (await talk.send("t", batch([value]))).error_code
    except grpc.aio.AioRpcError:
        return False


async def committed(talk: Conversation, group: str) -> int:
    topics = [pb.TopicPartitions(name="t", partitions=[0])]
    reply = await talk.groups.FetchOffsets(pb.FetchOffsetsRequest(group_id=group, topics=topics))
    assert reply.error_code == pb.NONE
    return reply.topics[0].partitions[0].offset


async def until_flushes_fail(coordinator: Coordinator) -> None:
    async with Conversation(coordinator.address) as talk:
        await talk.make("t")
        for offset in range(1, BEFORE + 1):
            for group in GROUPS:
                assert await is_committed(talk, group, offset)
            assert await is_appended(talk, b"before")
        coordinator.signal(signal.SIGUSR2)
        while not coordinator.has_said(SAID):
            await asyncio.sleep(0.01)
        for _ in range(TRIES):
            assert not await is_appended(talk, b"after")
            # The same group again and again: a second flush of the same pages must not make it good.
            for group in GROUPS:
                assert not await is_committed(talk, group, BEFORE + 1)
    async with asyncio.timeout(WITHIN_S):
        while not coordinator.has_said("check the disk, no group or topic is served until writing works"):
            await asyncio.sleep(0.01)
    assert (await asyncio.to_thread(get, coordinator.http, "/readyz")).status == 503


async def check(address: str) -> None:
    async with Conversation(address) as talk:
        for group in GROUPS:
            # Of the commit whose flush failed nobody knows; it was not acknowledged.
            assert await committed(talk, group) in {BEFORE, BEFORE + 1}
        values = await talk.values("t")
        assert values[:BEFORE] == [b"before"] * BEFORE
        assert set(values[BEFORE:]) <= {b"after"}


def test_nothing_is_acknowledged_that_was_not_flushed_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    coordinator = Coordinator(tmp_path, QUICK, program="tests.security.fsync_server")
    coordinator.start()
    asyncio.run(until_flushes_fail(coordinator))
    said = coordinator.log.read_text()
    assert "coordinator.db could not be written (" in said
    assert "Traceback" not in said
    coordinator.kill()
    coordinator.start()
    asyncio.run(check(coordinator.address))
    assert coordinator.stop() == 0


def test_a_coordinator_that_cannot_flush_does_not_start(tmp_path: Path) -> None:
    (tmp_path / FROM_THE_START).touch()
    coordinator = Coordinator(tmp_path, QUICK, program="tests.security.fsync_server")
    with pytest.raises(ProcessFailed):
        coordinator.start()
    said = coordinator.log.read_text().removeprefix(f"{SAID}\n")
    assert said.startswith("rota-coordinator: ")
    assert "coordinator.db" in said
    assert said.count("\n") == 1
