"""
The Session streams: many members' requests on one connection, and notices pushed back on it.

Losing a stream is not leaving: nothing is told to the groups, a member's own timers decide. What it still waited for
stays open, and is dropped when it would be answered.
"""

import asyncio
from collections.abc import AsyncIterator, Collection

import grpc

from rota_coordinator.gate import MALFORMED, UNREADABLE, Unreadable
from rota_coordinator.group.answers import ProtocolRequest
from rota_coordinator.security.door import Caller
from rota_coordinator.slot import Answer
from rota_coordinator.wellformed import fault
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# A stream with so many unanswered requests is told to wait.
OPEN_REQUESTS_MAX = 10_000
# Nothing more is read from a stream whose other side leaves so much unread; notices to it are dropped.
UNREAD_FRAMES_MAX = 10_000
UNREAD_BYTES_MAX = 8 * 1024 * 1024

Speaker = tuple[str, str]  # group id, member id
Frame = pb.SessionRequest | Unreadable


class Sessions:
    """Which stream each member last spoke on."""

    def __init__(self) -> None:
        self._by_speaker: dict[Speaker, Session] = {}
        self._running: set[Session] = set()

    def opened(self, session: "Session") -> None:
        """A stream runs; it will be told when the process stops."""
        self._running.add(session)

    def finish(self) -> None:
        """The process stops: every stream ends, after what is on its way."""
        for session in self._running:
            session.finish()

    def hears(self, session: "Session", speaker: Speaker) -> bool:
        """Whether the member last spoke on this stream."""
        return self._by_speaker.get(speaker) is session

    def heard(self, session: "Session", speaker: Speaker) -> None:
        """A member spoke: from now on it is told on this stream."""
        self._by_speaker[speaker] = session
        session.speakers.add(speaker)

    def notify(self, notice: pb.RebalanceNotice) -> None:
        """Push a notice, if its member is on a stream; else its next heartbeat tells it."""
        session = self._by_speaker.get((notice.group_id, notice.member_id))
        if session is not None:
            session.notify(pb.SessionResponse(rebalance_notice=notice))

    def go_away(self, group_ids: Collection[str], address: str) -> None:
        """Tell every stream on which members of these groups speak that they are served elsewhere now."""
        told = {
            (session, group_id)
            for (group_id, _), session in self._by_speaker.items()
            if group_id in group_ids
        }
        for session, group_id in told:
            session.notify(pb.SessionResponse(go_away=pb.GoAway(group_id=group_id, address=address)))

    def closed(self, session: "Session") -> None:
        """Forget a stream, for the members that did not move on to another one."""
        self._running.discard(session)
        for speaker in session.speakers:
            if self._by_speaker.get(speaker) is session:
                del self._by_speaker[speaker]


class Session:
    """One stream."""

    def __init__(self, sessions: Sessions, caller: Caller, client_host: str) -> None:
        self.speakers: set[Speaker] = set()
        self._sessions = sessions
        self._caller = caller
        self._client_host = client_host
        self._outgoing: asyncio.Queue[pb.SessionResponse | None] = asyncio.Queue()
        self._unanswered = 0
        self._unread_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._finishing = False

    def finish(self) -> None:
        """End the stream from this side, after the frames that wait, and the answers that were given just now."""
        self._finishing = True
        self._end()

    def _end(self) -> None:
        # The answers that were given just now are on their way into the queue.
        asyncio.get_running_loop().call_soon(self._outgoing.put_nowait, None)

    def notify(self, notice: pb.SessionResponse) -> None:
        """Send what nobody asked for, unless the other side has stopped to read: a heartbeat will tell it."""
        if self._has_room.is_set():
            self.push(notice)

    def push(self, frame: pb.SessionResponse) -> None:
        """Send a frame."""
        self._outgoing.put_nowait(frame)
        self._unread_bytes += frame.ByteSize()
        if self._outgoing.qsize() >= UNREAD_FRAMES_MAX or self._unread_bytes >= UNREAD_BYTES_MAX:
            self._has_room.clear()

    async def _outgoing_frames(self) -> AsyncIterator[pb.SessionResponse]:
        while (frame := await self._outgoing.get()) is not None:
            self._unread_bytes -= frame.ByteSize()
            if self._outgoing.qsize() < UNREAD_FRAMES_MAX // 2 and self._unread_bytes < UNREAD_BYTES_MAX // 2:
                self._has_room.set()
            yield frame

    async def run(self, frames: AsyncIterator[Frame]) -> AsyncIterator[pb.SessionResponse]:
        """Answer frames until the stream ends."""
        self._sessions.opened(self)
        reader = asyncio.ensure_future(self._read(frames))
        try:
            async for frame in self._outgoing_frames():
                yield frame
            if not self._finishing:
                await reader  # raises what ended it
        finally:
            reader.cancel()
            self._sessions.closed(self)

    async def _read(self, frames: AsyncIterator[Frame]) -> None:
        try:
            async for frame in frames:
                self._receive(frame)
                if not self._has_room.is_set():
                    await self._has_room.wait()
        finally:
            self._end()

    def _receive(self, frame: Frame) -> None:
        if isinstance(frame, Unreadable):
            self._fail(frame.request_id, MALFORMED, UNREADABLE)
            return
        kind = frame.WhichOneof("request")
        if kind is None or not frame.request_id:
            missing = "no request that this version knows" if kind is None else "no request_id"
            self._fail(frame.request_id, MALFORMED, f"the frame has {missing}")
        elif self._unanswered >= OPEN_REQUESTS_MAX:
            refusal = f"{self._unanswered} requests are open on this stream; wait for answers"
            self._fail(frame.request_id, grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)
        else:
            self._ask(frame.request_id, kind, getattr(frame, kind))

    def _ask(self, request_id: int, kind: str, request: ProtocolRequest | pb.FindCoordinatorRequest) -> None:
        wrong = fault(request)
        if wrong:
            self._caller.refused(request, MALFORMED.name)
            self._fail(request_id, MALFORMED, wrong)
        elif isinstance(request, pb.FindCoordinatorRequest):
            found = self._caller.find(request)
            self.push(pb.SessionResponse(request_id=request_id, find_coordinator=found))
        else:
            self._start(request_id, kind, request)

    def _start(self, request_id: int, kind: str, request: ProtocolRequest) -> None:
        self._unanswered += 1
        answer = self._caller.submit(request, self._client_host)
        speaker = (request.group_id, getattr(request, "member_id", ""))
        if not self._sessions.hears(self, speaker) and self._caller.is_member(*speaker):
            self._sessions.heard(self, speaker)
        answer.add_done_callback(lambda done: self._answered(request_id, kind, request.group_id, done))

    def _answered(self, request_id: int, kind: str, group_id: str, done: Answer) -> None:
        self._unanswered -= 1
        reply = done.result()
        if reply is None:
            self._fail(request_id, grpc.StatusCode.ABORTED, "a newer request of this member took its place")
            return
        if isinstance(reply, pb.JoinGroupResponse) and not reply.error_code:
            self._sessions.heard(self, (group_id, reply.member_id))
        frame = pb.SessionResponse(request_id=request_id)
        getattr(frame, kind).CopyFrom(reply)
        self.push(frame)

    def _fail(self, request_id: int, code: grpc.StatusCode, message: str) -> None:
        failure = pb.Failure(grpc_code=code.value[0], message=message)
        self.push(pb.SessionResponse(request_id=request_id, failure=failure))
