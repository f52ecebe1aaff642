"""
Session streams: the requests of many members come in on one stream, and responses and notices go out on it.

Called by `group_service` for each stream. The loss of a stream is not a leave: groups are not notified, and members
expire by their session timeouts. Requests of a lost stream stay open, and their responses are dropped.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from itertools import count
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from rota_coordinator.core.group.answers import ProtocolRequest
from rota_coordinator.rpc.validate_group import validate
from rota_coordinator.rpc.validation_interceptor import MALFORMED
from rota_coordinator.runtime.calls import Answer
from rota_coordinator.runtime.overload import Refusal, reply_size_refusal
from rota_coordinator.security.access_control import AuthorizedCaller
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.validation_interceptor import UNDECODABLE, UndecodableRequest

# Requests beyond this number of unanswered ones on a stream are rejected.
OPEN_REQUESTS_MAX = 10_000
# With this many unread frames, no more requests are read from the stream until the client has read half of them.
HELD_FRAMES = 10_000
HELD_BYTES = 8 * 1024 * 1024
# Responses and notices are still queued beyond HELD_FRAMES; at this many unread frames the stream is ended, because
# no frame is dropped silently.
UNREAD_FRAMES_MAX = 30_000
UNREAD_BYTES_MAX = 32 * 1024 * 1024
# A stream that reads no frame for this many seconds while frames wait is ended, after at most twice this time.
UNREAD_S = 10
STREAMS_MAX = 10_000

MemberKey = tuple[str, str]  # group id, member id
Frame = pb.SessionRequest | UndecodableRequest
Write = Callable[[pb.SessionResponse], Awaitable[None]]
# Responses whose errors in `RECOGNIZED` confirm the member, its instance and its generation. Commits are excluded:
# those of unknown topics are answered without the group.
MEMBER_ANSWERS = (pb.HeartbeatResponse, pb.JoinGroupResponse, pb.SyncGroupResponse)
RECOGNIZED = (pb.NONE, pb.REBALANCE_IN_PROGRESS)


class LatestRequest(NamedTuple):
    """The latest request of a member that its group recognized."""

    session: "Session"
    order: int  # arrival order among the requests of all streams


class Sessions:
    """
    The stream of each member, on which its notices are pushed.

    Invariant: it is the open stream of the member's latest request that its group recognized.
    """

    def __init__(self) -> None:
        self._by_member: dict[MemberKey, LatestRequest] = {}
        self._running: set[Session] = set()
        self._orders = count()

    def next_order(self) -> int:
        """Return the next number in the arrival order of requests."""
        return next(self._orders)

    def register(self, session: "Session") -> None:
        """Register a running stream; `finish` ends it."""
        if len(self._running) >= STREAMS_MAX:
            message = f"{STREAMS_MAX} streams are open, which is the limit; share a stream among members, or add a coordinator"
            raise Refusal("RESOURCE_EXHAUSTED", message)
        self._running.add(session)

    def finish(self) -> None:
        """End every stream after its queued frames; called when the process stops."""
        for session in self._running:
            session.finish()

    def is_latest_stream(self, session: "Session", member_key: MemberKey) -> bool:
        """Return whether the member's latest request came on this stream."""
        last = self._by_member.get(member_key)
        return last is not None and last.session is session

    def attach(self, session: "Session", member_key: MemberKey, order: int) -> None:
        """
        Push the member's notices on this stream, unless it has ended or the member has sent a later request on another.
        """
        last = self._by_member.get(member_key)
        if session not in self._running or (last is not None and order < last.order):
            return
        if last is not None and last.session is not session:
            last.session.members.discard(member_key)
        self._by_member[member_key] = LatestRequest(session, order)
        session.members.add(member_key)

    def forget(self, group_id: str, member_id: str) -> None:
        """Remove a member that left its group, or whose group is no longer served here."""
        last = self._by_member.pop((group_id, member_id), None)
        if last is not None:
            last.session.members.discard((group_id, member_id))

    def notify(self, notice: pb.RebalanceNotice) -> None:
        """Push a notice if its member has a stream; otherwise the response to its next heartbeat carries the error."""
        last = self._by_member.get((notice.group_id, notice.member_id))
        if last is not None:
            last.session.push(pb.SessionResponse(rebalance_notice=notice))

    def go_away(self, group_ids: Collection[str], address: str) -> None:
        """Send a GoAway for these groups on every stream that members of the groups use."""
        gone = [
            (member_key, last.session)
            for member_key, last in self._by_member.items()
            if member_key[0] in group_ids
        ]
        for member_key, _ in gone:
            self.forget(*member_key)
        for session, group_id in {(session, group_id) for (group_id, _), session in gone}:
            session.push(pb.SessionResponse(go_away=pb.GoAway(group_id=group_id, address=address)))

    def unregister(self, session: "Session") -> None:
        """Remove a stream with its members, except members that use another stream by now."""
        self._running.discard(session)
        for member_key in list(session.members):
            self.forget(*member_key)


class SendQueue:
    """The frames to send on one stream. Invariant: frames are sent in the order of `put`, none after `end`."""

    def __init__(self) -> None:
        # Frames with their sizes in bytes; None ends the stream.
        self._frames: deque[tuple[pb.SessionResponse, int] | None] = deque()
        # Set while frames wait to be sent.
        self._has_frames = asyncio.Event()
        self._bytes = 0
        self.sent = 0
        # Set while requests are read from the stream.
        self.has_room = asyncio.Event()
        self.has_room.set()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def has_unsent(self) -> bool:
        """Return whether frames are waiting to be sent."""
        return self._bytes > 0

    @property
    def is_over_limit(self) -> bool:
        return len(self._frames) > UNREAD_FRAMES_MAX or self._bytes > UNREAD_BYTES_MAX

    def put(self, frame: pb.SessionResponse, size: int) -> None:
        """Queue a frame of this size in bytes."""
        self._bytes += size
        self._put((frame, size))
        if len(self._frames) >= HELD_FRAMES or self._bytes >= HELD_BYTES:
            self.has_room.clear()

    def end(self) -> None:
        """
        End the queue after the queued frames and after the responses that complete in this turn of the event loop.
        """
        asyncio.get_running_loop().call_soon(self._put, None)

    def _put(self, waiting: tuple[pb.SessionResponse, int] | None) -> None:
        self._frames.append(waiting)
        self._has_frames.set()

    async def send(self, write: Write) -> None:
        """Send queued frames until the end of the queue; one wake-up sends all that were queued in a turn."""
        while True:
            await self._has_frames.wait()
            self._has_frames.clear()
            while self._frames:
                waiting = self._frames.popleft()
                if waiting is None:
                    return
                await write(waiting[0])
                self.sent += 1
                self._bytes -= waiting[1]
                if len(self._frames) < HELD_FRAMES // 2 and self._bytes < HELD_BYTES // 2:
                    self.has_room.set()


class Session:
    """A Session stream. Invariant: each request is answered at most once, with its request_id."""

    def __init__(self, sessions: Sessions, caller: AuthorizedCaller, client_host: str) -> None:
        self.members: set[MemberKey] = set()
        self._sessions = sessions
        self._caller = caller
        self._client_host = client_host
        self._send_queue = SendQueue()
        self._unanswered = 0
        self._refused: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()

    def finish(self) -> None:
        """End the stream after all queued responses."""
        self._send_queue.end()

    def push(self, frame: pb.SessionResponse) -> None:
        """Queue a frame; end the stream if the client does not read."""
        self._push(frame, frame.ByteSize())

    def _push(self, frame: pb.SessionResponse, size: int) -> None:
        self._send_queue.put(frame, size)
        if self._send_queue.is_over_limit:
            self._refuse()

    async def run(self, frames: AsyncIterator[Frame], write: Write) -> None:
        """Answer frames until the stream ends; raise a Refusal if the coordinator has to end it."""
        self._sessions.register(self)
        reader = asyncio.ensure_future(self._read(frames))
        writer = asyncio.ensure_future(self._send_queue.send(write))
        try:
            await self._until_ended(writer)
            if reader.done():
                reader.result()  # raises the error that ended the reader
        finally:
            reader.cancel()
            writer.cancel()
            self._sessions.unregister(self)
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _until_ended(self, writer: "asyncio.Task[None]") -> None:
        ends: tuple[asyncio.Future[Any], ...] = (writer, self._refused)
        while not writer.done():
            sent, waited = self._send_queue.sent, self._send_queue.has_unsent
            await asyncio.wait(ends, timeout=UNREAD_S, return_when=asyncio.FIRST_COMPLETED)
            if waited and self._send_queue.sent == sent:
                self._refuse()
            if self._refused.done():
                raise self._refused.result()
        writer.result()

    def _refuse(self) -> None:
        if not self._refused.done():
            message = f"{len(self._send_queue)} frames are unread on this stream; reconnect, and read responses as they arrive"
            self._refused.set_result(Refusal("RESOURCE_EXHAUSTED", message))

    async def _read(self, frames: AsyncIterator[Frame]) -> None:
        try:
            async for frame in frames:
                self._receive(frame)
                if not self._send_queue.has_room.is_set():
                    await self._send_queue.has_room.wait()
        finally:
            self._send_queue.end()

    def _receive(self, frame: Frame) -> None:
        if isinstance(frame, UndecodableRequest):
            self._fail(frame.request_id, MALFORMED, UNDECODABLE)
            return
        kind = frame.WhichOneof("request")
        if kind is None or not frame.request_id:
            missing = "no request known to this version" if kind is None else "no request_id"
            self._fail(frame.request_id, MALFORMED, f"the frame has {missing}")
        elif self._unanswered >= OPEN_REQUESTS_MAX:
            refusal = f"{self._unanswered} requests are unanswered on this stream; wait for responses"
            self._fail(frame.request_id, grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)
        else:
            self._ask(frame.request_id, kind, getattr(frame, kind))

    def _ask(self, request_id: int, kind: str, request: ProtocolRequest | pb.FindCoordinatorRequest) -> None:
        error = validate(request)
        if error:
            self._caller.refused(request, MALFORMED.name)
            self._fail(request_id, MALFORMED, error)
        elif isinstance(request, pb.FindCoordinatorRequest):
            found = self._caller.find(request)
            self.push(pb.SessionResponse(request_id=request_id, find_coordinator=found))
        else:
            self._start(request_id, kind, request)

    def _start(self, request_id: int, kind: str, request: ProtocolRequest) -> None:
        self._unanswered += 1
        order = self._sessions.next_order()
        member_key = (request.group_id, getattr(request, "member_id", ""))
        answer = self._caller.submit(request, self._client_host)

        def answered(done: Answer) -> None:
            refusal = done.exception()
            reply = None if refusal else done.result()
            self._attach_member(member_key, order, reply)
            self._answered(request_id, kind, refusal, reply)

        answer.when_done(answered)

    def _answered(
        self, request_id: int, kind: str, refusal: BaseException | None, reply: Message | None
    ) -> None:
        self._unanswered -= 1
        if isinstance(refusal, Refusal):
            self._fail(request_id, grpc.StatusCode[refusal.code], str(refusal))
            return
        if refusal is not None:
            raise refusal
        if reply is None:
            self._fail(
                request_id, grpc.StatusCode.ABORTED, "superseded by a newer request of the same member"
            )
            return
        frame = pb.SessionResponse(request_id=request_id)
        getattr(frame, kind).CopyFrom(reply)
        size = frame.ByteSize()
        too_large = reply_size_refusal(size)
        if too_large is not None:
            self._fail(request_id, grpc.StatusCode[too_large.code], str(too_large))
        else:
            self._push(frame, size)

    def _attach_member(self, member_key: MemberKey, order: int, reply: Message | None) -> None:
        """Attach the member to this stream once the response confirms it."""
        error = getattr(reply, "error_code", pb.NONE)
        if error == pb.NOT_COORDINATOR:
            self._sessions.forget(*member_key)
        elif isinstance(reply, MEMBER_ANSWERS) and error in RECOGNIZED:
            # A join may have assigned the member its id.
            member = (member_key[0], getattr(reply, "member_id", member_key[1]))
            # A heartbeat succeeds while its group is loading, although the member may have left.
            if self._sessions.is_latest_stream(self, member) or self._caller.is_member(*member):
                self._sessions.attach(self, member, order)

    def _fail(self, request_id: int, code: grpc.StatusCode, message: str) -> None:
        failure = pb.Failure(grpc_code=code.value[0], message=message)
        self.push(pb.SessionResponse(request_id=request_id, failure=failure))
