"""
The Session streams: many members' requests on one connection, and notices pushed back on it.

Losing a stream is not leaving: nothing is told to the groups, a member's own timers decide. What it still waited for
stays open, and is dropped when it would be answered.
"""

import asyncio
from collections.abc import AsyncIterator, Collection

import grpc

from rota_coordinator.group.answers import ProtocolRequest
from rota_coordinator.security.door import Caller
from rota_coordinator.slot import Answer
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# A stream with so many unanswered requests is told to wait; so is one that does not read its answers.
OPEN_REQUESTS_MAX = 10_000

Speaker = tuple[str, str]  # group id, member id


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
            session.push(pb.SessionResponse(rebalance_notice=notice))

    def go_away(self, group_ids: Collection[str], address: str) -> None:
        """Tell every stream on which members of these groups speak that they are served elsewhere now."""
        told = {
            (session, group_id)
            for (group_id, _), session in self._by_speaker.items()
            if group_id in group_ids
        }
        for session, group_id in told:
            session.push(pb.SessionResponse(go_away=pb.GoAway(group_id=group_id, address=address)))

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
        self._finishing = False

    def finish(self) -> None:
        """End the stream from this side, after the frames that wait, and the answers that were given just now."""
        self._finishing = True
        asyncio.get_running_loop().call_soon(self._outgoing.put_nowait, None)

    def push(self, frame: pb.SessionResponse) -> None:
        """Send a frame, unless the other side has stopped to read."""
        if self._outgoing.qsize() < OPEN_REQUESTS_MAX:
            self._outgoing.put_nowait(frame)

    async def run(self, frames: AsyncIterator[pb.SessionRequest]) -> AsyncIterator[pb.SessionResponse]:
        """Answer frames until the stream ends."""
        self._sessions.opened(self)
        reader = asyncio.ensure_future(self._read(frames))
        try:
            while (frame := await self._outgoing.get()) is not None:
                yield frame
            if not self._finishing:
                await reader  # raises what ended it
        finally:
            reader.cancel()
            self._sessions.closed(self)

    async def _read(self, frames: AsyncIterator[pb.SessionRequest]) -> None:
        try:
            async for frame in frames:
                self._receive(frame)
        finally:
            self._outgoing.put_nowait(None)

    def _receive(self, frame: pb.SessionRequest) -> None:
        kind = frame.WhichOneof("request")
        if kind is None or not frame.request_id:
            missing = "no request that this version knows" if kind is None else "no request_id"
            self._fail(frame.request_id, grpc.StatusCode.INVALID_ARGUMENT, f"the frame has {missing}")
        elif self._unanswered >= OPEN_REQUESTS_MAX:
            refusal = f"{self._unanswered} requests are open on this stream; wait for answers"
            self._fail(frame.request_id, grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)
        elif kind == "find_coordinator":
            found = self._caller.find(frame.find_coordinator)
            self.push(pb.SessionResponse(request_id=frame.request_id, find_coordinator=found))
        else:
            self._start(frame.request_id, kind, getattr(frame, kind))

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
        if isinstance(reply, pb.JoinGroupResponse) and reply.member_id:
            self._sessions.heard(self, (group_id, reply.member_id))
        frame = pb.SessionResponse(request_id=request_id)
        getattr(frame, kind).CopyFrom(reply)
        self.push(frame)

    def _fail(self, request_id: int, code: grpc.StatusCode, message: str) -> None:
        failure = pb.Failure(grpc_code=code.value[0], message=message)
        self.push(pb.SessionResponse(request_id=request_id, failure=failure))
