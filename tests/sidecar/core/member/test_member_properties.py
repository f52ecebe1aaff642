"""Whatever happens in whatever order, a member breaks none of its own rules and never comes to rest for nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as some

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.consumer_protocol.assignment import Assignment, encode_assignment
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.config import Subscription
from rota_sidecar.core.member.messages import Response
from rota_sidecar.core.member.partitions import Offset
from tests.sidecar.core.member.driven import COOPERATIVE, EAGER, MEMBER_ID, Driven
from tests.sidecar.core.member.driven import given as given_partitions

Error: TypeAlias = pb.ErrorCode.ValueType
Call = do.FindCoordinator | do.SendRequest | do.ComputeAssignment
ANSWERS = {
    pb.HeartbeatRequest: pb.HeartbeatResponse,
    pb.LeaveGroupRequest: pb.LeaveGroupResponse,
    pb.CommitOffsetsRequest: pb.CommitOffsetsResponse,
    pb.FetchOffsetsRequest: pb.FetchOffsetsResponse,
}
SUBSCRIPTIONS = (Subscription(("orders", "other")), Subscription(pattern="o.*"))
ERRORS = some.sampled_from(sorted(pb.ErrorCode.values()))
USUAL = some.one_of(some.just(pb.NONE), some.just(pb.NONE), some.just(pb.NONE), ERRORS)


@dataclass
class Play:
    """A member, and what it waits for."""

    driven: Driven
    waiting: list[Call]

    def step(self, event: on.Event) -> list[do.Action]:
        actions = self.driven.step(event)
        self.waiting += [
            each
            for each in actions
            if isinstance(each, do.FindCoordinator | do.SendRequest | do.ComputeAssignment)
        ]
        return actions

    def tick(self) -> on.Event:
        """The alarm rings, if there is one."""
        alarm = self.driven.member.alarm
        if alarm is not None:
            self.driven.now_ms = max(self.driven.now_ms, alarm.at_ms + alarm.spread_ms)
        return on.Tick()

    def answer(self, index: int, error: Error, numbers: set[int]) -> on.Event:
        """An answer to one of the calls under way."""
        if not self.waiting:
            return on.Tick()
        call = self.waiting.pop(index)
        match call:
            case do.FindCoordinator():
                return on.CoordinatorFound(call.call, error)
            case do.ComputeAssignment():
                return on.AssignmentComputed(call.call, [], {"orders": len(numbers)})
            case do.SendRequest():
                return on.ResponseReceived(call.call, self._response(call, error, numbers))

    def _response(self, call: do.SendRequest, error: Error, numbers: set[int]) -> Response:
        match call.request:
            case pb.JoinGroupRequest():
                self.driven.generation += 1
                return pb.JoinGroupResponse(
                    error_code=error,
                    generation_id=self.driven.generation,
                    member_id=MEMBER_ID,
                    leader=MEMBER_ID if len(numbers) % 2 else "other",
                )
            case pb.SyncGroupRequest():
                assignment = encode_assignment(Assignment({"orders": sorted(numbers)}))
                return pb.SyncGroupResponse(error_code=error, assignment=assignment)
            case request:
                response: Response = ANSWERS[type(request)](error_code=error)
                return response

    def fail(self, *, refused: bool) -> on.Event:
        """The newest call fails."""
        return on.CallFailed(self.waiting.pop().call, "no answer", refused) if self.waiting else on.Tick()

    def given_up(self) -> on.Event:
        """The application has let go of what was revoked last."""
        revocations = [each.revocation for each in self.driven.done if isinstance(each, do.Revoke)]
        return on.PartitionsReleased(revocations[-1] if revocations else 0)

    def commit(self, numbers: set[int]) -> on.Event:
        """Of what it has, and of what it has not."""
        held = self.driven.member.held
        tenures = {each: held[each].number if each in held else 0 for each in given_partitions(*numbers)}
        return on.Commit(1, {each: Offset(tenure, 1) for each, tenure in tenures.items()})


def begin(*, eager: bool) -> Play:
    """A member that has just been started."""
    play = Play(Driven(EAGER if eager else COOPERATIVE), [])
    play.step(on.Start())
    return play


EVENTS: dict[str, Callable[[Play, Error, set[int]], on.Event]] = {
    "answer": lambda play, error, numbers: play.answer(-1, error, numbers),
    "answer the oldest": lambda play, error, numbers: play.answer(0, error, numbers),
    "fail": lambda play, error, numbers: play.fail(refused=False),
    "refuse": lambda play, error, numbers: play.fail(refused=len(numbers) == 3),
    "tick": lambda play, error, numbers: play.tick(),
    "given up": lambda play, error, numbers: play.given_up(),
    "notice": lambda play, error, numbers: on.RebalanceNoticed(
        MEMBER_ID, play.driven.member.identity.generation
    ),
    "hurry": lambda play, error, numbers: on.HeartbeatRequested(),
    "balance": lambda play, error, numbers: on.Rebalance("told to"),
    "gone": lambda play, error, numbers: on.CoordinatorLost("it went away"),
    "topics": lambda play, error, numbers: on.TopicsDescribed({"orders": len(numbers), "other": 2}),
    "subscribe": lambda play, error, numbers: on.Subscribe(SUBSCRIPTIONS[len(numbers) % 2]),
    "strategies": lambda play, error, numbers: on.OfferStrategies(EAGER if len(numbers) % 2 else COOPERATIVE),
    "commit": lambda play, error, numbers: play.commit(numbers),
    "fetch": lambda play, error, numbers: on.Fetch(1, [*given_partitions(*numbers)]),
    "start": lambda play, error, numbers: on.Start(),
    "end": lambda play, error, numbers: on.End(
        5_000, "told to", final=len(numbers) > 2, is_succeeded=len(numbers) > 4
    ),
}
# What happens most, so that long lives are lived.
MOSTLY = ["answer"] * 12 + ["tick"] * 4 + ["given up"] * 3


def goes_on_by_itself(play: Play) -> bool:
    """Return True if a timer or a call under way goes on with the member, or nothing has to."""
    match play.driven.member.state:
        case st.Stopped(leave_call=None) | st.Down(leave_call=None):
            return True
        case st.Joining(call=None, retry_ms=None):
            return True  # for topics, which are looked at again and again
        case _:
            return play.driven.member.alarm is not None or bool(play.waiting)


STEPS = some.lists(
    some.tuples(some.sampled_from(MOSTLY + sorted(EVENTS)), USUAL, some.sets(some.integers(0, 3))),
    max_size=60,
)
Steps = list[tuple[str, Error, set[int]]]


@settings(max_examples=300)
@given(some.booleans(), STEPS)
def test_it_keeps_its_rules_and_never_waits_for_nothing(eager: bool, steps: Steps) -> None:
    play = begin(eager=eager)
    for what, error, numbers in steps:
        for action in play.step(EVENTS[what](play, error, numbers)):
            if isinstance(action, do.SendRequest) and isinstance(action.request, pb.CommitOffsetsRequest):
                assert action.request.generation_id == play.driven.member.identity.generation >= 0
        assert goes_on_by_itself(play)


@settings(max_examples=200)
@given(some.booleans(), STEPS)
def test_once_everybody_answers_it_is_stable_or_has_ended(eager: bool, steps: Steps) -> None:
    play = begin(eager=eager)
    for what, error, numbers in steps:
        play.step(EVENTS[what](play, error, numbers))
    for _ in range(200):
        match play.driven.member.state:
            case st.Stable() | st.Stopped(leave_call=None) | st.Down(leave_call=None):
                return
            case st.Revoking(revocation=number) | st.Rediscover(back=st.Revoking(revocation=number)):
                play.step(on.PartitionsReleased(number))
            case st.Joining(call=None, retry_ms=None):
                play.step(on.TopicsDescribed({"orders": 4, "other": 2}))
            case _ if play.waiting:
                play.step(play.answer(-1, pb.NONE, {0, 1}))
            case _:
                play.step(play.tick())
    raise AssertionError(f"it is still {play.driven.state}")
