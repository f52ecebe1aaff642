"""
The open calls of a slot, and the messages that its decisions send. Called by `slot`, and by a timer for commits that time out.

A call is answered by the delivery of its decision, by its timeout if it is a commit, or with an error when the slot stops. A commit
that times out is answered while its write still waits; the response to its decision is then dropped.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group.answers import Request, refused
from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.runtime.commit_timeouts import timed_out
from rota_coordinator.runtime.environments import SlotEnvironment
from rota_coordinator.runtime.observer import error_of
from rota_coordinator.runtime.replicated_state import SlotState
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# Requests that do not change their group's records; a heartbeat only extends deadlines.
ReadOnlyRequest = pb.HeartbeatRequest | pb.FetchOffsetsRequest | admin.DescribeGroupsRequest
CommitRequest = pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest


class Answer(asyncio.Future[Message | None]):
    """The response to a call; None: a newer call of the same member superseded it, and it gets no response."""

    _then: "Callable[[Answer], None] | None" = None

    def when_done(self, then: "Callable[[Answer], None]") -> None:
        """
        Call `then` as soon as there is a response or an exception, within the same turn of the event loop; at most one callback.

        `add_done_callback` of a future costs each call another turn.
        """
        if self.done():
            then(self)
        else:
            self._then = then

    @override
    def set_result(self, result: Message | None, /) -> None:
        super().set_result(result)
        if self._then is not None:
            self._then(self)

    @override
    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        if self._then is not None:
            self._then(self)


class OpenCall(NamedTuple):
    """A call without response yet, and the time at which it was submitted."""

    request: Request
    answer: Answer
    since_s: float


class OpenCalls:
    """Invariant: each call is answered at most once, and calls are in the order of their arrival."""

    def __init__(self, environment: SlotEnvironment, may_act: Callable[[], bool]) -> None:
        """`may_act` returns whether the slot may answer; it is called before commits time out, and may stop the slot."""
        self._environment = environment
        self._observers = environment.observers
        self._timeout_s = environment.config.commit_timeout_ms / 1000
        self._may_act = may_act
        self._open: dict[Call, OpenCall] = {}
        self._calls = cast("Iterator[Call]", itertools.count())
        # Set while a commit waits for the store; due no later than its timeout.
        self._timer: asyncio.TimerHandle | None = None
        # No commit times out earlier, because this process stalled. In seconds of the event loop's clock.
        self._commits_wait_until_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def open(self, request: Request) -> tuple[Call, Answer]:
        """Open a call, and return its id and the future of its response."""
        loop = asyncio.get_running_loop()
        call, answer = next(self._calls), Answer(loop=loop)
        self._open[call] = OpenCall(request, answer, loop.time())
        return call, answer

    def send(self, effects: Effects) -> None:
        """Send the responses and notices of a decision, all of whose records are durable."""
        environment = self._environment
        for message in environment.failpoints.messages(effects):
            if isinstance(message, pb.RebalanceNotice):
                environment.notify(message)
            else:
                self.answer(*message)
        for group_id, member_id in effects.removed_members:
            environment.member_removed(group_id, member_id)
        for change in effects.rounds:
            self._observers.round_changed(change)

    def answer(self, call: Call, reply: Message | None) -> None:
        """Answer a call, unless it has been answered or cancelled."""
        found = self._open.pop(call, None)
        if found is not None and not found.answer.done():
            seconds = found.answer.get_loop().time() - found.since_s
            self._observers.answered(found.request, error_of(reply), seconds)
            found.answer.set_result(reply)

    def refuse(self, call: Call, error: pb.ErrorCode.ValueType) -> None:
        """Answer an open call with an error."""
        self.answer(call, refused(self._open[call].request, error))

    def refuse_all(self, error: pb.ErrorCode.ValueType) -> None:
        """Answer all open calls with an error; the slot stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call, (request, _, _) in list(self._open.items()):
            self.answer(call, refused(request, error))

    def limit(self, call: Call) -> None:
        """Answer the call by its timeout, if it is a commit that waits for the store."""
        if self._timer is None and call in self._open and isinstance(self._open[call].request, CommitRequest):
            self._time_out_commits()

    def _time_out_commits(self) -> None:
        """Answer the commits that have waited for their timeout, and set the timer for the next one."""
        loop = asyncio.get_running_loop()
        commits = (
            (call, max(since_s, self._commits_wait_until_s - self._timeout_s))
            for call, (request, _, since_s) in self._open.items()
            if isinstance(request, CommitRequest)
        )
        late = timed_out(commits, loop.time(), self._timeout_s)
        for call in late.calls:
            # Its write may still succeed, and the client has to know that.
            self.refuse(call, pb.REQUEST_TIMED_OUT)
        if late.next_s is not None:
            self._timer = loop.call_at(late.next_s, self._due)

    def compensate_stall(self, stall_ms: int) -> None:
        """Extend the timeouts of commits by a stall of the process that ended now, by one timeout at most."""
        granted_s = min(stall_ms / 1000, self._timeout_s)
        self._commits_wait_until_s = asyncio.get_running_loop().time() + granted_s

    def _due(self) -> None:
        self._timer = None
        if self._may_act():
            self._time_out_commits()


def unready_error(request: Request, state: SlotState) -> pb.ErrorCode.ValueType:
    """Return the error of a request to a slot that is not served; NONE: the request succeeds."""
    if state is SlotState.DOWN:
        return pb.NOT_COORDINATOR
    # As in Kafka, heartbeats succeed while the group is loading, so that members stay in the group.
    return pb.NONE if isinstance(request, pb.HeartbeatRequest) else pb.COORDINATOR_LOAD_IN_PROGRESS


def may_change_its_group(request: Request) -> bool:
    """Return whether the request may change its group; a commit at most creates one, outside a generation."""
    if isinstance(request, CommitRequest):
        return request.generation_id < 0
    return not isinstance(request, ReadOnlyRequest)


def is_all_well(request: Request, effects: Effects) -> bool:
    """
    Return whether the request is a heartbeat that succeeds without any effect.

    Its response waits for no write, because it confirms a generation that was durable before the member received it.
    A slow disk therefore delays commits, but not heartbeats.
    """
    if not isinstance(request, pb.HeartbeatRequest):
        return False
    ((_, reply),) = effects.replies
    return not (isinstance(reply, pb.HeartbeatResponse) and reply.error_code)
