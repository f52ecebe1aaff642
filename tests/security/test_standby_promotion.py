"""A primary of PostgreSQL dies under load: after the promotion of its synchronous standby no acknowledged commit is missing."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import grpc.aio
import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.support.coordinator import QUICK, Coordinator
from tests.support.postgres import Postgres
from tests.support.postgres.server import running, standby_of

pytestmark = pytest.mark.process
GROUPS = [f"g-{number}" for number in range(8)]
# Those that commit no more once the primary is dead: what they have then must be on the standby.
STOPPING, GOING_ON = GROUPS[:4], GROUPS[4:]
BEFORE, AFTER = 25, 10
TRY_S = 2
LEASE_MS = 1_500
STORY_S = 60


class Commits:
    """Commits 1, 2, 3, … for each group, and what of that was acknowledged."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = CoordinatorStub(channel)
        self.acknowledged = dict.fromkeys(GROUPS, 0)
        self.refused = 0

    async def go_on(self, group: str) -> None:
        """Commit the next number until it is acknowledged, then the one after it, until cancelled."""
        while True:
            offset = pb.PartitionOffset(index=0, offset=self.acknowledged[group] + 1)
            request = pb.CommitOffsetsRequest(
                group_id=group,
                generation_id=-1,
                topics=[pb.TopicOffsets(name="t", partitions=[offset])],
            )
            try:
                reply = await self._stub.CommitOffsets(request, timeout=TRY_S)
            except grpc.aio.AioRpcError:
                self.refused += 1
                continue
            if reply.error_code or reply.topics[0].partitions[0].error_code:
                self.refused += 1
                await asyncio.sleep(0.05)
                continue
            self.acknowledged[group] += 1

    async def reach(self, more: int, groups: Sequence[str]) -> None:
        """Wait until each of these has so many more acknowledged commits."""
        goals = {group: self.acknowledged[group] + more for group in groups}
        while any(self.acknowledged[group] < goal for group, goal in goals.items()):
            await asyncio.sleep(0.01)

    async def committed(self, group: str) -> int:
        """Return the committed offset as soon as the coordinator serves the group."""
        topics = [pb.TopicPartitions(name="t", partitions=[0])]
        while True:
            request = pb.FetchOffsetsRequest(group_id=group, topics=topics)
            reply = await self._stub.FetchOffsets(request, timeout=STORY_S)
            if not reply.error_code:
                return reply.topics[0].partitions[0].offset
            await asyncio.sleep(0.05)


async def until_promoted(address: str, primary: Postgres, standby: Postgres) -> dict[str, int]:
    """Commit while the primary dies and the standby takes its place; what was acknowledged in the end."""
    async with asyncio.timeout(STORY_S), grpc.aio.insecure_channel(address) as channel:
        commits = Commits(channel)
        committing = {group: asyncio.create_task(commits.go_on(group)) for group in GROUPS}
        await commits.reach(BEFORE, GROUPS)
        await asyncio.to_thread(primary.kill)
        await end(committing[group] for group in STOPPING)
        await asyncio.to_thread(standby.promote)
        await commits.reach(AFTER, GOING_ON)
        await end(committing[group] for group in GOING_ON)
        assert commits.refused, "no commit met the time without a primary"
        return commits.acknowledged


async def end(tasks: Iterable["asyncio.Task[None]"]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def check(address: str, acknowledged: Mapping[str, int]) -> None:
    """Check the log of a coordinator that has read everything from the promoted server."""
    async with asyncio.timeout(STORY_S), grpc.aio.insecure_channel(address) as channel:
        commits = Commits(channel)
        for group, offset in acknowledged.items():
            # One more may be there, which could not be acknowledged any more.
            assert offset <= await commits.committed(group) <= offset + 1


def test_after_the_promotion_of_a_synchronous_standby_every_acknowledged_commit_is_there(
    tmp_path: Path,
) -> None:
    with running() as primary:
        store = primary.new_database("rota")
        with standby_of(primary) as standby:
            here, there = (server.dsn.partition("@")[2].partition("/")[0] for server in (primary, standby))
            coordinator = Coordinator(
                tmp_path,
                (*QUICK, f"--slot-lease-ms={LEASE_MS}"),
                store=store.replace(here, f"{here},{there}"),
            )
            coordinator.start()
            acknowledged = asyncio.run(until_promoted(coordinator.address, primary, standby))
            coordinator.kill()
            coordinator.start()
            asyncio.run(check(coordinator.address, acknowledged))
            assert coordinator.stop() == 0
