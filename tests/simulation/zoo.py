"""
Known bugs, each put into the shipping code: the simulation must catch every one of them.

They show that the invariants can fail, and that what the simulation does is enough to make them fail.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from google.protobuf.message import Message

from rota_coordinator.group import commit, expiry, round
from rota_coordinator.group.effects import Effects
from rota_coordinator.group.groups import Groups
from rota_coordinator.group.members import Member, Members
from rota_coordinator.group.offsets import Offsets
from rota_coordinator.group.state import Group
from rota_coordinator.slot import Slot, SlotState
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record

# Puts a bug in place, for as long as its block lasts.
Bug = Callable[[], AbstractContextManager[object]]


def replaced(target: object, name: str, wrong: object) -> Bug:
    """The bug of having this in that place."""
    return lambda: patch.object(target, name, wrong)


def answers_before_it_is_written(
    self: Slot, group_id: str, effects: Effects, *, changes: bool = True
) -> None:
    if effects.records:
        self.shell.store.append(self.number, self.epoch, effects.records)
    self._schedule(group_id)
    self._deliver(self._life, effects)


def goes_on_after_an_unknown_outcome(self: Slot, life: int, append: "asyncio.Future[None]") -> None:
    append.exception()


def commits_are_not_checked(group: Group, request: Message, now_ms: int) -> int:
    return pb.NONE


def generations_are_not_written(self: Group, record: Record, effects: Effects) -> None:
    if record.WhichOneof("record") != "generation_reserved":
        effects.records.append(record)
    self.replay(record)


def assignments_are_not_written(self: Group, record: Record, effects: Effects) -> None:
    if record.WhichOneof("record") != "group" or not record.group.members:
        effects.records.append(record)
    self.replay(record)


def silence_is_not_noticed(member: Member) -> bool:
    return False


def heartbeats_do_not_count(self: Group, member: Member, now_ms: int) -> None:
    member.session_deadline_ms = member.session_deadline_ms or now_ms + member.session_timeout_ms


def everybody_gets_the_leaders_part(group: Group, effects: Effects, member: Member) -> None:
    leader = group.members.by_id[group.members.leader]
    assert member.syncing is not None
    reply = pb.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=leader.assignment
    )
    effects.replies.append((member.syncing, reply))
    member.syncing = None


def snapshots_forget_offsets(self: Offsets) -> list[Record]:
    return []


def snapshots_forget_generations(self: Groups) -> list[Record]:
    records = [Record(group=group.durable) for group in self.groups.values()]
    return records + [record for offsets in self.offsets.values() for record in offsets.snapshot()]


async def serves_before_it_has_read(self: Slot) -> None:
    self.epoch, _ = await self.shell.store.claim(self.number)
    self.groups = Groups(self.shell.config)
    self.state = SlotState.READY
    for record in await self.shell.store.load(self.number):
        self.groups.replay(record)


def rounds_wait_for_nobody(self: Group) -> bool:
    return any(member.joining is not None for member in self.members)


def leaders_are_not_replaced(self: Members, member: Member) -> None:
    del self.by_id[member.member_id]
    if member.instance_id is not None:
        del self.instances[member.instance_id]


ZOO: dict[str, Bug] = {
    "answers before it is written": replaced(Slot, "_perform", answers_before_it_is_written),
    "goes on after an unknown outcome": replaced(Slot, "_appended", goes_on_after_an_unknown_outcome),
    "commits are not checked": replaced(commit, "refusal", commits_are_not_checked),
    "generations are not written": replaced(Group, "write", generations_are_not_written),
    "assignments are not written": replaced(Group, "write", assignments_are_not_written),
    "silence is not noticed": replaced(expiry, "can_expire", silence_is_not_noticed),
    "heartbeats do not count": replaced(Group, "touch", heartbeats_do_not_count),
    "everybody gets the leader's part": replaced(round, "answer_sync", everybody_gets_the_leaders_part),
    "snapshots forget offsets": replaced(Offsets, "snapshot", snapshots_forget_offsets),
    "snapshots forget generations": replaced(Groups, "snapshot", snapshots_forget_generations),
    "serves before it has read": replaced(Slot, "start", serves_before_it_has_read),
    "rounds wait for nobody": replaced(Group, "all_joined", rounds_wait_for_nobody),
    "leaders are not replaced": replaced(Members, "remove", leaders_are_not_replaced),
}
