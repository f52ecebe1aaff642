"""A group joined by hand through the sidecar's adapter to Kafka: what the tests of the adapter are written with."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.messages import Response
from rota_sidecar.engines.kafka.coordination import KafkaCoordination
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.port import CoordinatorEvent
from tests.conformance.kafka import NOT_YET
from tests.conformance.members import subscription

Answer = TypeVar("Answer", bound=Response)
WITHIN_S = 60
TEST_S = 60
POLL_S = 0.05
SESSION_MS = 6_000
REBALANCE_MS = 10_000


def run(test: Coroutine[None, None, None]) -> None:
    """One test, which ends in any case."""

    async def within() -> None:
        async with asyncio.timeout(TEST_S):
            await test

    asyncio.run(within())


@dataclass(slots=True)
class HandMember:
    """A member that does what the test says, and nothing by itself."""

    coordination: KafkaCoordination
    group: str
    topic: str
    received: "asyncio.Queue[CoordinatorEvent]"
    strategy: str = "range"
    member_id: str = ""
    generation: int = -1

    async def serve(self) -> None:
        """Find a coordinator that serves the group: asked the first time ever, a broker prepares that."""
        while (error := await self.coordination.find(WITHIN_S)) != pb.NONE or (
            error := await self._fetch_offsets()
        ) in NOT_YET:
            assert error in NOT_YET, f"error {error}"
            await asyncio.sleep(POLL_S)

    async def join(self, within_s: float = WITHIN_S) -> pb.JoinGroupResponse:
        """Both steps."""
        answer = await self._join(within_s)
        if answer.error_code == pb.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self._join(within_s)
        if answer.error_code == pb.NONE:
            self.generation = answer.generation_id
        return answer

    async def sync(self, **assignments: bytes) -> pb.SyncGroupResponse:
        """With what the leader has decided, by member id."""
        request = pb.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self.strategy,
            assignments=[
                pb.Assignment(member_id=name, assignment=data) for name, data in assignments.items()
            ],
        )
        return kind(await self.coordination.ask(request, WITHIN_S), pb.SyncGroupResponse)

    async def heartbeat(self, within_s: float = WITHIN_S) -> pb.ErrorCode.ValueType:
        """The error code."""
        request = pb.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return kind(await self.coordination.ask(request, within_s), pb.HeartbeatResponse).error_code

    async def commit(self, offset: int, generation: int, *partitions: int) -> int:
        """The error code of the whole."""
        offsets = [pb.PartitionOffset(index=index, offset=offset, leader_epoch=-1) for index in partitions]
        request = pb.CommitOffsetsRequest(
            group_id=self.group,
            generation_id=generation,
            member_id=self.member_id,
            topics=[pb.TopicOffsets(name=self.topic, partitions=offsets)],
        )
        return kind(await self.coordination.ask(request, WITHIN_S), pb.CommitOffsetsResponse).error_code

    async def leave(self) -> int:
        """The error code of the whole."""
        request = pb.LeaveGroupRequest(
            group_id=self.group, members=[pb.LeavingMember(member_id=self.member_id)]
        )
        return kind(await self.coordination.ask(request, WITHIN_S), pb.LeaveGroupResponse).error_code

    async def _fetch_offsets(self) -> pb.ErrorCode.ValueType:
        """The error code. A heartbeat would not do: while a broker loads the group, it answers each of them with NONE."""
        request = pb.FetchOffsetsRequest(group_id=self.group, all=True)
        return kind(await self.coordination.ask(request, WITHIN_S), pb.FetchOffsetsResponse).error_code

    async def _join(self, within_s: float) -> pb.JoinGroupResponse:
        request = pb.JoinGroupRequest(
            group_id=self.group,
            member_id=self.member_id,
            client_id="by-hand",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[pb.Protocol(name=self.strategy, metadata=subscription(self.topic))],
        )
        return kind(await self.coordination.ask(request, within_s), pb.JoinGroupResponse)


@asynccontextmanager
async def member(settings: KafkaSettings, group: str, topic: str = "any") -> AsyncIterator[HandMember]:
    """A member that has not looked for its coordinator yet."""
    received: asyncio.Queue[CoordinatorEvent] = asyncio.Queue()
    coordination = KafkaCoordination(settings, group, received.put_nowait)
    try:
        yield HandMember(coordination, group, topic, received)
    finally:
        await coordination.close()


def kind(answer: Response, expected: type[Answer]) -> Answer:
    """The answer as its type."""
    assert isinstance(answer, expected)
    return answer
