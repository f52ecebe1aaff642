"""
Bugs that the simulation has found in the coordinator, each as the shortest scenario that shows it. They stay for
ever.
"""

import asyncio
from collections.abc import Sequence

from typing_extensions import override

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.effects import Call
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.join import Joining
from rota_coordinator.core.group.state import State
from rota_coordinator.core.instants import MonotonicMs
from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.runtime.environments import SlotEnvironment
from rota_coordinator.runtime.slot import Slot
from rota_coordinator.store.port import Claim, Store, StoreError
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import GroupMember, GroupRecord, Record
from tests.simulation.host import give_up

SESSION_MS, REBALANCE_MS = 10_000, 20_000


class Story:
    """A group of static members, told step by step."""

    def __init__(self) -> None:
        self.groups = Groups(GroupConfig(initial_rebalance_delay_ms=0, rebalance_coalesce_ms=0))
        self.now_ms = 0
        self._number = 0

    @property
    def state(self) -> State:
        return self.groups.groups["g"].state

    def member_id(self, instance: str) -> str:
        """Under which id an instance is in the group."""
        return self.groups.groups["g"].members.instances[instance]

    def join(self, instance: str, member_id: str = "") -> None:
        self._number += 1
        request = pb.JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[pb.Protocol(name="range")],
        )
        call = Call(self._number)
        self.groups.join(Joining(call, request, "/127.0.0.1", f"#{self._number}"), MonotonicMs(self.now_ms))

    def sync(self, instance: str) -> None:
        self._number += 1
        request = pb.SyncGroupRequest(
            group_id="g",
            member_id=self.member_id(instance),
            group_instance_id=instance,
            generation_id=self.groups.groups["g"].generation,
            protocol_type="consumer",
            protocol_name="range",
        )
        self.groups.handle(Call(self._number), request, MonotonicMs(self.now_ms))

    def wait(self, milliseconds: int, *instances: str) -> None:
        """Let the time pass while these members heartbeat."""
        for _ in range(milliseconds // 1_000):
            self.now_ms += 1_000
            for instance in instances:
                request = pb.HeartbeatRequest(
                    group_id="g",
                    member_id=self.member_id(instance),
                    group_instance_id=instance,
                    generation_id=self.groups.groups["g"].generation,
                )
                self.groups.handle(Call(0), request, MonotonicMs(self.now_ms))
            self.groups.pass_time("g", MonotonicMs(self.now_ms))


def two_in_a_generation_without_its_leaders_sync() -> Story:
    story = Story()
    story.join("a")
    story.groups.pass_time("g", MonotonicMs(0))
    story.join("b")
    story.join("a", story.member_id("a"))
    assert story.state is State.COMPLETING
    return story


def two_in_a_generation() -> Story:
    story = two_in_a_generation_without_its_leaders_sync()
    story.sync("a")
    assert story.state is State.STABLE
    return story


def test_a_static_member_that_comes_back_before_it_synced_may_still_sync() -> None:
    # It was waited for under its old id; when the wait was over the group rebalanced, with nobody missing.
    story = two_in_a_generation()
    story.join("b")
    story.sync("b")
    story.wait(2 * REBALANCE_MS, "a", "b")
    assert story.state is State.STABLE
    assert story.groups.groups["g"].generation == 2


def test_a_static_member_that_comes_back_and_never_syncs_is_given_up() -> None:
    story = two_in_a_generation()
    story.join("b")
    story.wait(REBALANCE_MS, "a", "b")
    assert story.groups.groups["g"].members.instances.keys() == {"a"}


def test_who_waits_for_its_part_does_not_go_with_the_leader_that_never_brought_it() -> None:
    # The leader's session ended while the others waited in their syncs, which were then as old: all were put out.
    story = two_in_a_generation_without_its_leaders_sync()
    story.sync("b")
    story.wait(SESSION_MS)
    assert story.groups.groups["g"].members.instances.keys() == {"b"}
    assert story.state is State.PREPARING


class FailingStore(Store):
    """Empty, and lets its appends end as a test says."""

    slots = SLOTS

    def __init__(self) -> None:
        self.appends: list[asyncio.Future[None]] = []

    @override
    async def claim(self, slot: int) -> Claim:
        return Claim(1, b"")

    @override
    async def load(self, slot: int) -> Sequence[Record]:
        return []

    @override
    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        self.appends.append(asyncio.get_running_loop().create_future())
        return self.appends[-1]

    @override
    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        raise AssertionError("nothing here is long")

    @override
    async def close(self) -> None:
        """Nothing is held."""


def test_nothing_is_read_between_a_failed_write_and_the_moment_when_that_is_known() -> None:
    # The write had failed, its slot did not know yet, and a request that came just then was answered from memory.
    async def story() -> pb.FetchOffsetsResponse:
        store = FailingStore()
        environment = SlotEnvironment(
            store=store,
            config=GroupConfig(),
            now_ms=lambda: MonotonicMs(0),
            new_uuid=lambda: "",
            notify=lambda notice: None,
            group_changed=lambda group_id: None,
            report=lambda text: None,
            report_exception=give_up,
        )
        slot = Slot(0, environment)
        await slot.start()
        topics = [pb.TopicOffsets(name="t", partitions=[pb.PartitionOffset(index=0, offset=5)])]
        commit = pb.CommitOffsetsRequest(group_id="g", generation_id=-1, topics=topics)
        slot.submit(commit, "/127.0.0.1")
        for append in store.appends:
            append.set_exception(StoreError("nobody knows"))
        read = await slot.submit(pb.FetchOffsetsRequest(group_id="g", all=True), "/127.0.0.1")
        slot.stop(pb.NOT_COORDINATOR)
        assert isinstance(read, pb.FetchOffsetsResponse)
        return read

    assert asyncio.run(story()).error_code == pb.NOT_COORDINATOR


def written(generation: int, protocol: str, metadata: bytes, session_ms: int = SESSION_MS) -> Record:
    """A round of one member, as the log has it."""
    member = GroupMember(
        member_id="a-1",
        metadata=metadata,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=REBALANCE_MS,
    )
    return Record(
        group=GroupRecord(
            group_id="g",
            incarnation=1,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=protocol,
            leader="a-1",
            members=[member],
        )
    )


def test_a_restart_reads_what_a_member_said_last() -> None:
    # Members that had been in a round of another strategy were read with that one: nobody could join them any more.
    groups = Groups(GroupConfig())
    groups.replay(written(1, "range", b"old"))
    groups.replay(written(2, "roundrobin", b"new", session_ms=2 * SESSION_MS))
    member = groups.groups["g"].members.by_id["a-1"]
    assert member.protocols == (("roundrobin", b"new"),)
    assert groups.groups["g"].members.candidates() == {"roundrobin"}
    assert member.session_timeout_ms == 2 * SESSION_MS


def test_a_round_that_is_written_leaves_a_member_all_that_it_offers() -> None:
    story = Story()
    story.join("a")
    story.groups.pass_time("g", MonotonicMs(0))
    group = story.groups.groups["g"]
    (member,) = group.members
    member.protocols = (("range", b""), ("sticky", b"more"))
    story.sync("a")
    assert story.state is State.STABLE
    assert [name for name, _ in member.protocols] == ["range", "sticky"]
