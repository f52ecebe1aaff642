"""Requests to a coordinator that is still loading: a slot of its groups, or the embedded log."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.batch import Header
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.runtime.environments import LogEnvironment
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.store.port import LogStore
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import Member, fetch, topic_offsets
from tests.coordinator.virtual import Memory, Virtual, play

GROUP = "g"
LOADING_S = 1


async def loading_slot() -> "tuple[Virtual, asyncio.Task[Virtual]]":
    """A service whose slots are loading, and the task that ends when they are loaded."""
    virtual = Virtual(store=Memory(latency_s=LOADING_S))
    started = asyncio.create_task(virtual.start())
    while virtual.service.slot(GROUP).state is not SlotState.CATCH_UP:
        await asyncio.sleep(LOADING_S / 100)
    return virtual, started


async def errors_of(virtual: Virtual, request: Message) -> set[int]:
    """The error codes of an answer: its own, or those of its groups or partitions."""
    reply = await virtual.send(request).answer()
    if isinstance(reply, admin.DescribeGroupsResponse | admin.DeleteGroupsResponse):
        return {group.error_code for group in reply.groups}
    return {reply.error_code}  # type: ignore[attr-defined]


def requests_to(group: str) -> list[Message]:
    """One request of each kind, but for heartbeats."""
    commit = pb.CommitOffsetsRequest(group_id=group, member_id="m", generation_id=1)
    transactional = pb.TxnCommitOffsetsRequest(group_id=group, member_id="m", generation_id=1)
    alter = admin.AlterOffsetsRequest(group_id=group)
    for storing in (commit, transactional, alter):
        storing.topics.append(topic_offsets({0: 1}))
    return [
        pb.JoinGroupRequest(group_id=group, session_timeout_ms=6_000, protocol_type="consumer"),
        pb.SyncGroupRequest(group_id=group, member_id="m", generation_id=1),
        pb.LeaveGroupRequest(group_id=group, members=[pb.LeavingMember(member_id="m")]),
        commit,
        transactional,
        pb.FetchOffsetsRequest(group_id=group, all=True),
        admin.DescribeGroupsRequest(group_ids=[group]),
        admin.DeleteGroupsRequest(group_ids=[group]),
        admin.DeleteOffsetsRequest(group_id=group),
        alter,
    ]


def test_a_slot_that_is_loading_says_so_to_every_request_but_a_heartbeat() -> None:
    heartbeat = pb.HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1)

    async def body() -> None:
        virtual, started = await loading_slot()
        for request in requests_to(GROUP):
            assert await errors_of(virtual, request) == {pb.COORDINATOR_LOAD_IN_PROGRESS}, request
        assert await errors_of(virtual, heartbeat) == {pb.NONE}
        assert await Member(virtual, GROUP).commit() == pb.COORDINATOR_LOAD_IN_PROGRESS

        await started
        assert await errors_of(virtual, heartbeat) == {pb.UNKNOWN_MEMBER_ID}
        assert await Member(virtual, GROUP).commit() == pb.NONE

    play(body)


def test_while_a_slot_is_loading_that_is_said_before_a_request_is_looked_at() -> None:
    async def body() -> None:
        virtual, started = await loading_slot()
        short = Member(virtual, GROUP, session_ms=1).join_request()
        assert await errors_of(virtual, short) == {pb.COORDINATOR_LOAD_IN_PROGRESS}
        await started
        assert await errors_of(virtual, short) == {pb.INVALID_SESSION_TIMEOUT}

    play(body)


@dataclass(slots=True)
class Unread(Memory):
    """A store whose log is read when `readable` is set."""

    readable: asyncio.Event = field(default_factory=asyncio.Event)

    async def headers(self) -> AsyncIterator[Sequence[tuple[int, Header]]]:
        await self.readable.wait()
        for nothing in list[Sequence[tuple[int, Header]]]():
            yield nothing

    async def sizes(self) -> Mapping[int, int]:
        return {}

    @override
    async def close(self) -> None:
        """Nothing is held."""


def test_while_the_log_loads_commits_are_refused_and_fetches_are_served() -> None:
    async def body() -> None:
        virtual = await Virtual().start()
        assert await Member(virtual, GROUP).commit({0: 7}) == pb.NONE
        store = Unread()
        environment = LogEnvironment(
            cast("LogStore", store),
            LogConfig(),
            now_ms=lambda: WallMs(0),
            new_uuid=lambda: b"t" * 16,
            report=virtual.reports.append,
            report_exception=virtual.faults.append,
        )
        log = virtual.service.serve_log(environment)
        reading = asyncio.create_task(log.start())
        await asyncio.sleep(0.1)
        assert log.state is SlotState.CATCH_UP
        assert await Member(virtual, GROUP).commit({0: 8}) == pb.COORDINATOR_LOAD_IN_PROGRESS
        alter = admin.AlterOffsetsRequest(group_id=GROUP, topics=[topic_offsets({0: 8})])
        assert await errors_of(virtual, alter) == {pb.COORDINATOR_LOAD_IN_PROGRESS}
        assert await fetch(virtual, GROUP, 0) == {0: 7}

        store.readable.set()
        await reading
        # The log is known now, and has no such topic.
        assert await Member(virtual, GROUP).commit({0: 8}) == pb.UNKNOWN_TOPIC_OR_PARTITION
        assert await fetch(virtual, GROUP, 0) == {0: 7}

    play(body)
