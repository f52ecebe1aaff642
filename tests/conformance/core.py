"""The group core under test, in virtual time: no server, no store, no waiting."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rota_coordinator.core.group import admin
from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.join import Joining
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.coordinator.v1 import admin_pb2 as admin_pb
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import HandoverSnapshot, ProducerEnded, Record
from tests.conformance.driver import (
    ANSWER_S,
    CORE,
    EXPIRING,
    FIRST_PRODUCER,
    PARKED_S,
    PRODUCERS,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    Settings,
)


def config(settings: Settings) -> GroupConfig:
    """As the reference broker is set up for the cases."""
    return GroupConfig(
        session_timeout_ms_min=SESSION_TIMEOUT_MS_MIN,
        session_timeout_ms_max=SESSION_TIMEOUT_MS_MAX,
        initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
        rebalance_coalesce_ms=settings.rebalance_coalesce_ms,
        members_max=settings.members_max,
        offsets_retention_ms=settings.retention_s * 1000,
    )


class Unanswered(AssertionError):
    """A call has no answer where one was due."""


@dataclass(slots=True)
class CoreDriver:
    """The shell in its smallest form: a clock that is moved by hand, and a list for a store."""

    settings: Settings
    name: str = CORE
    now_ms: int = 1_000_000
    records: list[Record] = field(default_factory=list)
    answers: dict[Call, Message] = field(default_factory=dict)
    superseded: set[Call] = field(default_factory=set)
    notices: list[pb.RebalanceNotice] = field(default_factory=list)
    groups: Groups = field(init=False)
    _calls: int = 0

    def __post_init__(self) -> None:
        self.groups = Groups(config(self.settings))

    def send(self, request: Message) -> "CoreCall":
        self._calls += 1
        call = Call(self._calls)
        self.perform(self.decide(call, request))
        self._let_due_timers_run()
        return CoreCall(self, call)

    def decide(self, call: Call, request: Message) -> Effects:
        """Hand a request to the core."""
        match request:
            case pb.JoinGroupRequest():
                joining = Joining(call, request, "/127.0.0.1", str(uuid.uuid4()))
                return self.groups.join(joining, MonotonicMs(self.now_ms))
            case pb.SyncGroupRequest() | pb.HeartbeatRequest() | pb.LeaveGroupRequest():
                return self.groups.handle(call, request, MonotonicMs(self.now_ms))
            case pb.CommitOffsetsRequest() | pb.TxnCommitOffsetsRequest():
                return self.groups.commit(call, request, MonotonicMs(self.now_ms))
            case pb.FetchOffsetsRequest():
                return self.groups.fetch(call, request)
            case admin_pb.ListGroupsRequest():
                # The server does this over all slots; here there is one.
                listed = [admin.listed(group) for group in self.groups.groups.values()]
                found = [each for each in listed if not request.states or each.state in request.states]
                return Effects(replies=[(call, admin_pb.ListGroupsResponse(groups=found))])
            case (
                admin_pb.DescribeGroupsRequest()
                | admin_pb.DeleteGroupsRequest()
                | admin_pb.DeleteOffsetsRequest()
                | admin_pb.AlterOffsetsRequest()
            ):
                return self.groups.administer(call, request, MonotonicMs(self.now_ms))
            case _:
                raise TypeError(f"the core has no answer to a {type(request).__name__}")

    def perform(self, effects: Effects) -> None:
        self.records += effects.records
        self.superseded.update(effects.superseded)
        self.notices += effects.notices
        for call, reply in effects.replies:
            assert call not in self.answers, "a call was answered twice"
            self.answers[call] = reply

    async def pass_time(self, seconds: float) -> None:
        self.run_until(self.now_ms + round(seconds * 1000))
        if self.settings.retention_s == EXPIRING.retention_s:
            # The server does this every few minutes.
            for group_id in list(self.groups.groups):
                self.perform(self.groups.expire_offsets(group_id, MonotonicMs(self.now_ms)))

    async def end_transaction(self, group: str, producer: str = FIRST_PRODUCER, *, committed: bool) -> None:
        """End a transaction as the log does: notify the group of its producer's outcome."""
        ended = ProducerEnded(producer_id=PRODUCERS[producer], committed=committed)
        self.perform(self.groups.end_transaction(group, ended))

    async def fail_over(self, group: str) -> None:
        """The next one knows what was written, and nothing else."""
        self.groups = Groups(config(self.settings))
        for record in self.records:
            self.groups.replay(record)
        for effects in self.groups.loaded(MonotonicMs(self.now_ms), HandoverSnapshot()).values():
            self.perform(effects)

    def run_until(self, end_ms: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Move the clock from one due time to the next."""
        while not stop():
            due = [
                at for group_id in self.groups.groups if (at := self.groups.wake_at_ms(group_id)) is not None
            ]
            if not due or min(due) > end_ms:
                self.now_ms = max(self.now_ms, end_ms)
                return
            self.now_ms = max(self.now_ms, min(due))
            self._let_due_timers_run()

    def _let_due_timers_run(self) -> None:
        for group_id in list(self.groups.groups):
            at_ms = self.groups.wake_at_ms(group_id)
            if at_ms is not None and at_ms <= self.now_ms:
                self.perform(self.groups.pass_time(group_id, MonotonicMs(self.now_ms)))


@dataclass(frozen=True, slots=True)
class CoreCall:
    """A call to the core."""

    driver: CoreDriver
    call: Call

    async def answer(self, within_s: float = ANSWER_S) -> Message:
        answers = self.driver.answers
        self.driver.run_until(self.driver.now_ms + round(within_s * 1000), stop=lambda: self.call in answers)
        if self.call not in answers:
            raise Unanswered(f"no answer within {within_s} s")
        return answers[self.call]

    async def is_parked(self) -> bool:
        await self.driver.pass_time(PARKED_S)
        return self.call not in self.driver.answers
