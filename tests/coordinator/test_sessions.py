"""A stream whose other side reads slowly, or not at all: nothing that was asked is lost, and little is kept."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from typing_extensions import override

from rota_coordinator.group.answers import Request
from rota_coordinator.security.authenticator import Anonymous
from rota_coordinator.security.door import Caller
from rota_coordinator.sessions import UNREAD_BYTES_MAX, UNREAD_FRAMES_MAX, Session, Sessions
from rota_coordinator.slot import Answer
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

SPEAKER = ("group", "member")


class Known(Caller):
    """A caller who is answered at once: a sync with what the test says, a heartbeat with nothing."""

    def __init__(self, assignment_bytes: int) -> None:
        self.principal = Anonymous.PRINCIPAL
        self._synced = pb.SyncGroupResponse(assignment=bytes(assignment_bytes))

    @override
    def submit(self, request: Request, client_host: str) -> Answer:
        answer: Answer = asyncio.get_running_loop().create_future()
        answer.set_result(
            self._synced if isinstance(request, pb.SyncGroupRequest) else pb.HeartbeatResponse()
        )
        return answer

    @override
    def is_member(self, group_id: str, member_id: str) -> bool:
        return (group_id, member_id) == SPEAKER


class Other:
    """The other side of a stream: what it has sent, and what it reads."""

    def __init__(self, frames: int, assignment_bytes: int) -> None:
        self.sent = 0
        self.sessions = Sessions()
        session = Session(self.sessions, Known(assignment_bytes), "/127.0.0.1")
        self.answers = session.run(self._send(frames))

    async def _send(self, frames: int) -> AsyncIterator[pb.SessionRequest]:
        group_id, member_id = SPEAKER
        for number in range(1, frames + 1):
            self.sent = number
            sync = pb.SyncGroupRequest(group_id=group_id, member_id=member_id)
            yield pb.SessionRequest(request_id=number, sync_group=sync)
            await asyncio.sleep(0)

    async def until_nothing_moves(self) -> None:
        """What can go on without being read has gone on."""
        before = -1
        while self.sent != before:
            before = self.sent
            for _ in range(10):
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("assignment_bytes", "unread_max"),
    [(0, UNREAD_FRAMES_MAX), (1024 * 1024, UNREAD_BYTES_MAX // (1024 * 1024))],
    ids=["many", "large"],
)
def test_a_stream_that_is_not_read_is_not_read_from_either(assignment_bytes: int, unread_max: int) -> None:
    """And as soon as it is read again everything is answered, in order."""

    async def body() -> None:
        other = Other(3 * unread_max, assignment_bytes)
        first = await anext(other.answers)
        await other.until_nothing_moves()
        assert unread_max <= other.sent <= unread_max + 2
        rest = [frame.request_id async for frame in other.answers]
        assert [first.request_id, *rest] == list(range(1, 3 * unread_max + 1))

    asyncio.run(body())


def test_who_does_not_read_is_told_nothing_new() -> None:
    """A notice may be missed, a heartbeat says the same; kept ones would fill the memory."""
    notice = pb.RebalanceNotice(group_id=SPEAKER[0], member_id=SPEAKER[1])

    async def body() -> None:
        other = Other(2 * UNREAD_FRAMES_MAX, 0)
        await anext(other.answers)
        other.sessions.notify(notice)
        await other.until_nothing_moves()
        other.sessions.notify(notice)
        kinds = [frame.WhichOneof("response") async for frame in other.answers]
        assert kinds.count("rebalance_notice") == 1
        assert kinds.count("sync_group") == 2 * UNREAD_FRAMES_MAX - 1

    asyncio.run(body())


def test_a_stream_hears_members_only() -> None:
    """What somebody says under a name that no member has is answered, and leaves no trace."""

    async def body() -> None:
        session = Session(Sessions(), Known(0), "/127.0.0.1")

        async def frames() -> AsyncIterator[pb.SessionRequest]:
            for number, member_id in enumerate(("stranger", "member", "x"), 1):
                heartbeat = pb.HeartbeatRequest(group_id="group", member_id=member_id)
                yield pb.SessionRequest(request_id=number, heartbeat=heartbeat)

        assert len([frame async for frame in session.run(frames())]) == 3
        assert session.speakers == {SPEAKER}

    asyncio.run(body())
