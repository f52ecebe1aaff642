"""A member in hand: events go in one by one, and each answer that it waits for is given, or not."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.consumer_protocol.assignment import Assignment, encode_assignment
from rota_sidecar.core.consumer_protocol.user_data import (
    AssignmentData,
    encode_assignment_data,
    fingerprint_of_plan,
    fingerprint_of_topics,
)
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.core.member.member import Member
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure

GROUP = "orders"
SESSION_MS = 10_000
HEARTBEAT_MS = 1_000
REBALANCE_MS = 60_000
INCARNATION = 77
EAGER = (Strategy("range", cooperative=False),)
COOPERATIVE = (Strategy("cooperative-sticky", cooperative=True),)
ORDERS = Subscription(("orders",))
MEMBER_ID = "member-1"
OTHER_ID = "member-2"
Found = TypeVar("Found")


def given(*numbers: int, topic: str = "orders") -> frozenset[Partition]:
    """Return partitions of one topic, by their numbers."""
    return frozenset(Partition(topic, number) for number in numbers)


class Driven:
    """Holds what must hold after each step, whatever the step was."""

    def __init__(
        self,
        strategies: tuple[Strategy, ...] = COOPERATIVE,
        subscription: Subscription = ORDERS,
        instance_id: str | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        config = MemberConfig(
            GROUP,
            instance_id=instance_id,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        self.member = Member(config, subscription, strategies)
        self.strategies = strategies
        self.now_ms = 1_000_000
        self.done: list[do.Action] = []
        self.generation = 0
        # What the leader planned for, which the coordinator keeps with its assignment. None: the leader does not say.
        self.planned: Mapping[str, int] | None = None
        self._calls: set[int] = set()
        self._ended = False

    @property
    def state(self) -> str:
        return type(self.member.state).__name__

    def step(self, event: on.Event) -> list[do.Action]:
        """One event; what it led to."""
        before = dict(self.member.held)
        actions = list(self.member.step(event, self.now_ms))
        held = dict(before)
        for action in actions:
            self._check(action, held)
        assert held == dict(self.member.held), "what is held changes by Assign, Revoked and Lose only"
        self.done += actions
        return actions

    def _check(self, action: do.Action, held: dict[Partition, Tenure]) -> None:
        answers = do.Committed | do.Fetched
        assert not self._ended or isinstance(action, answers), "nothing comes after the end but refusals"
        match action:
            case do.FindCoordinator(call=call) | do.ComputeAssignment(call=call) | do.SendRequest(call=call):
                assert call not in self._calls
                self._calls.add(call)
            case do.Assign():
                assert not action.partitions & held.keys()
                held.update(dict.fromkeys(action.partitions, action.tenure))
            case do.Revoke():
                assert action.partitions
                assert action.partitions <= held.keys()
                assert action.deadline_ms <= self.now_ms + REBALANCE_MS
            case do.Revoked(partitions=partitions) | do.Lost(partitions=partitions):
                assert partitions
                for partition in partitions:
                    del held[partition]
            case do.Ended():
                assert not held
                self._ended = True
            case _:
                pass

    def pass_time(self, seconds: float) -> list[do.Action]:
        """Let time go by, with a tick whenever one is wanted."""
        until_ms, done = self.now_ms + int(seconds * 1000), []
        while (alarm := self.member.alarm) is not None and alarm.at_ms <= until_ms:
            self.now_ms = max(self.now_ms, alarm.at_ms + alarm.spread_ms)
            actions = self.step(on.Tick())
            assert actions or self.member.alarm != alarm, "a tick that changes nothing comes for ever"
            done += actions
        self.now_ms = max(self.now_ms, until_ms)
        return done

    def last(self, kind: type[Found]) -> Found:
        """The last action of a kind."""
        return next(action for action in reversed(self.done) if isinstance(action, kind))

    def sent(self, kind: type[Found]) -> tuple[int, Found]:
        """The last request of a kind, and its call."""
        return next(
            (action.call, action.request)
            for action in reversed(self.done)
            if isinstance(action, do.SendRequest) and isinstance(action.request, kind)
        )

    # One step of a round each

    def start(self, saved: SavedMembership | None = None) -> list[do.Action]:
        return self.step(on.Start(saved))

    def find(self, error: pb.ErrorCode.ValueType = pb.NONE) -> list[do.Action]:
        return self.step(on.CoordinatorFound(self.last(do.FindCoordinator).call, error))

    def refuse_join(self, error: pb.ErrorCode.ValueType, member_id: str = "") -> list[do.Action]:
        call, _ = self.sent(pb.JoinGroupRequest)
        return self.step(
            on.ResponseReceived(call, pb.JoinGroupResponse(error_code=error, member_id=member_id))
        )

    def answer_join(
        self, *, leads: bool = False, skip_assignment: bool = False, others: Sequence[pb.Member] = ()
    ) -> list[do.Action]:
        call, request = self.sent(pb.JoinGroupRequest)
        self.generation += 1
        response = pb.JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=MEMBER_ID if leads else OTHER_ID,
            member_id=MEMBER_ID,
            skip_assignment=skip_assignment,
            members=[pb.Member(member_id=MEMBER_ID, metadata=request.protocols[0].metadata), *others]
            if leads
            else [],
        )
        return self.step(on.ResponseReceived(call, response))

    def answer_lead(self, partitions: int = 6) -> list[do.Action]:
        call = self.last(do.ComputeAssignment).call
        self.planned = {"orders": partitions}
        return self.step(on.AssignmentComputed(call, [pb.Assignment(member_id=MEMBER_ID)], self.planned))

    def answer_sync(
        self,
        *numbers: int,
        error: pb.ErrorCode.ValueType = pb.NONE,
        rejoins: bool = False,
        subscribed: Sequence[str] = (),
    ) -> list[do.Action]:
        call, _ = self.sent(pb.SyncGroupRequest)
        data = encode_assignment_data(
            AssignmentData(
                INCARNATION,
                rejoins,
                fingerprint_of_topics(subscribed) if subscribed else b"",
                b"" if self.planned is None else fingerprint_of_plan(self.planned),
            )
        )
        assignment = Assignment({"orders": numbers} if numbers else {}, data)
        response = pb.SyncGroupResponse(error_code=error, assignment=encode_assignment(assignment))
        return self.step(on.ResponseReceived(call, response))

    def answer_heartbeat(self, error: pb.ErrorCode.ValueType = pb.NONE) -> list[do.Action]:
        call, _ = self.sent(pb.HeartbeatRequest)
        return self.step(on.ResponseReceived(call, pb.HeartbeatResponse(error_code=error)))

    def answer_commit(self, error: pb.ErrorCode.ValueType = pb.NONE) -> list[do.Action]:
        call, request = self.sent(pb.CommitOffsetsRequest)
        topics = [
            pb.TopicErrors(
                name=topic.name,
                partitions=[
                    pb.PartitionError(index=each.index, error_code=error) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return self.step(on.ResponseReceived(call, pb.CommitOffsetsResponse(error_code=error, topics=topics)))

    def give_up(self) -> list[do.Action]:
        return self.step(on.PartitionsReleased(self.last(do.Revoke).revocation))

    def end(
        self,
        *,
        final: bool = True,
        leave_static: bool = False,
        is_succeeded: bool = False,
        within_s: int = 30,
    ) -> list[do.Action]:
        return self.step(on.End(within_s * 1000, "told to", final, leave_static, is_succeeded))

    def commit(self, offset: int = 5, *numbers: int, request: int = 9) -> list[do.Action]:
        """Commit that offset for these, or for all that it has."""
        partitions = given(*numbers) if numbers else self.member.held.keys()
        offsets = {each: Offset(self.member.held[each].number, offset) for each in partitions}
        return self.step(on.Commit(request, offsets))

    def join(self, *numbers: int, leads: bool = False) -> "Driven":
        """From the start to an assignment."""
        self.start()
        self.find()
        self.refuse_join(pb.MEMBER_ID_REQUIRED, MEMBER_ID)
        self.answer_join(leads=leads)
        if leads:
            self.answer_lead()
        self.answer_sync(*numbers)
        return self


def names(actions: Sequence[do.Action]) -> list[str]:
    """Return the names of actions, and of the requests that they send."""
    return [
        type(action.request).__name__.removesuffix("Request")
        if isinstance(action, do.SendRequest)
        else type(action).__name__
        for action in actions
    ]
