"""
The group core under any order of requests and any passing of time.

Invariants: a call is answered at most once, and is known to wait until then; generations only rise; replaying the
records yields the state that the group has; and a group whose members are silent becomes empty and has no timers.
"""

import asyncio
from collections import Counter

from google.protobuf.message import Message
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from typing_extensions import override

from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.state import Group, State
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.core import CoreCall, CoreDriver
from tests.conformance.driver import DEFAULT, DELAYED
from tests.conformance.members import Member, assignment, subscription

GROUP = "group"
PEOPLE = st.integers(min_value=0, max_value=4)
HOUR_S = 3600


def durable(group: Group) -> object:
    """Return the state of a group that must survive a crash."""
    members = {each.member_id: (each.instance_id, each.assignment) for each in group.members}
    return (
        group.incarnation,
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.members.leader,
        members,
        group.owners,
    )


class AnyOrder(RuleBasedStateMachine):
    """Five people, of whom two are static, do anything at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = CoreDriver(DEFAULT)
        self.people = [self.person(number) for number in range(5)]
        self.joins: dict[int, CoreCall] = {}
        self.calls: list[CoreCall] = []
        self.highest_generation = 0

    def person(self, number: int) -> Member:
        instance = f"instance-{number}" if number < 2 else None
        return Member(
            self.driver, GROUP, instance=instance, session_ms=1000 + 500 * number, rebalance_ms=3000
        )

    def keep(self, call: object) -> CoreCall:
        assert isinstance(call, CoreCall)
        self.calls.append(call)
        return call

    def reply_to(self, call: CoreCall) -> Message | None:
        return self.driver.answers.get(call.call)

    def learn(self) -> None:
        """People read the answers to their joins."""
        for number, call in list(self.joins.items()):
            reply = self.reply_to(call)
            if not isinstance(reply, pb.JoinGroupResponse):
                continue
            del self.joins[number]
            if reply.error_code == pb.MEMBER_ID_REQUIRED:
                self.people[number].member_id = reply.member_id
            elif reply.error_code == pb.NONE:
                self.people[number].accept(reply)
            else:
                self.people[number] = self.person(number)

    @rule(number=PEOPLE, data=st.sampled_from([b"", b"x"]), order=st.booleans())
    def join(self, number: int, data: bytes, order: bool) -> None:
        self.learn()
        person = self.people[number]
        names = ("range", "roundrobin") if order else ("roundrobin", "range")
        person.protocols = {name: subscription(user_data=data) for name in names}
        self.joins[number] = self.keep(person.send_join())

    @rule(number=PEOPLE)
    def forget_and_join(self, number: int) -> None:
        """A restart of the process: it does not know its id."""
        self.people[number] = self.person(number)
        self.joins[number] = self.keep(self.people[number].send_join())

    @rule(number=PEOPLE)
    def sync(self, number: int) -> None:
        self.learn()
        person = self.people[number]
        parts = {each.member_id: assignment(index) for index, each in enumerate(person.entries)}
        self.keep(person.send_sync(parts))

    @rule(number=PEOPLE, behind=st.integers(min_value=-1, max_value=1))
    def heartbeat(self, number: int, behind: int) -> None:
        self.learn()
        person = self.people[number]
        request = pb.HeartbeatRequest(
            group_id=GROUP, generation_id=person.generation + behind, member_id=person.member_id
        )
        self.keep(self.driver.send(request))

    @rule(numbers=st.lists(PEOPLE, max_size=3))
    def leave(self, numbers: list[int]) -> None:
        self.learn()
        members = [
            pb.LeavingMember(
                member_id=self.people[number].member_id, group_instance_id=self.people[number].instance
            )
            for number in numbers
        ]
        self.keep(self.driver.send(pb.LeaveGroupRequest(group_id=GROUP, members=members)))

    @rule(number=PEOPLE, partition=st.integers(0, 4), offset=st.integers(0, 9), anonymous=st.booleans())
    def commit(self, number: int, partition: int, offset: int, anonymous: bool) -> None:
        self.learn()
        person = Member(self.driver, GROUP) if anonymous else self.people[number]
        self.keep(self.driver.send(person.commit_request({partition: offset})))

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 2.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        asyncio.run(self.driver.pass_time(seconds))

    @invariant()
    def every_call_is_answered_or_waits(self) -> None:
        waiting = {
            call for group in self.driver.groups.groups.values() for each in group.members for call in (each.joining, each.syncing)
        }  # fmt: skip
        for call in self.calls:
            answered = call.call in self.driver.answers or call.call in self.driver.superseded
            assert answered != (call.call in waiting), "a call is lost, or waits though it was answered"

    @invariant()
    def sizes_are_sums_over_the_members(self) -> None:
        for group in self.driver.groups.groups.values():
            sizes = group.members.sizes
            assert sizes.entries == sum(each.entry_bytes for each in group.members)
            assert sizes.offers == sum(each.offer_bytes for each in group.members)
            assert sizes.names == Counter(each.offers for each in group.members)

    @invariant()
    def generations_only_rise(self) -> None:
        group = self.driver.groups.groups.get(GROUP)
        if group is not None:
            assert group.reserved_generation >= self.highest_generation
            assert group.generation <= group.reserved_generation
            self.highest_generation = group.reserved_generation

    @invariant()
    def the_records_say_what_the_group_says(self) -> None:
        read = Groups(self.driver.groups.config)
        for record in self.driver.records:
            read.replay(record)
        live = self.driver.groups
        again = Groups(live.config)
        for record in live.snapshot():
            again.replay(record)
        assert again.snapshot() == read.snapshot() == live.snapshot()
        assert read.offsets == live.offsets
        assert read.groups.keys() == live.groups.keys()
        for group_id, group in live.groups.items():
            assert read.groups[group_id].reserved_generation == group.reserved_generation
            if group.state in (State.STABLE, State.EMPTY):
                assert durable(read.groups[group_id]) == durable(group)

    @override
    def teardown(self) -> None:
        """Stop all members and clients."""
        asyncio.run(self.driver.pass_time(HOUR_S))
        for group_id, group in self.driver.groups.groups.items():
            assert group.state is State.EMPTY
            assert self.driver.groups.wake_at_ms(group_id) is None


class AnyOrderDelayed(AnyOrder):
    """The same where a first round waits for more members."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = CoreDriver(DELAYED)
        self.people = [self.person(number) for number in range(5)]


TestAnyOrder = AnyOrder.TestCase
TestAnyOrderDelayed = AnyOrderDelayed.TestCase
# Fixed examples: the same tree gives the same verdict. `make soak` draws others.
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, derandomize=True)
TestAnyOrderDelayed.settings = TestAnyOrder.settings
