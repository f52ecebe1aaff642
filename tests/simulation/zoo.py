"""
Known bugs of coordinators, each put into the shipping code: the simulation must catch every one of them.

They show that the invariants can fail, and that what the simulation does is enough to make them fail.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from unittest.mock import patch

from google.protobuf.message import Message

from rota_coordinator.core.group import admin, barrier, commit, expiry, join, round, state
from rota_coordinator.core.group.answers import copied
from rota_coordinator.core.group.consumer_protocol import TopicPartition
from rota_coordinator.core.group.effects import Call, Cause, Effects
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.join import Joining
from rota_coordinator.core.group.members import Member, Members, instance_of
from rota_coordinator.core.group.offsets import Committed, Offsets, removed
from rota_coordinator.core.group.state import Group, State, answer, described
from rota_coordinator.core.instants import MonotonicMs
from rota_coordinator.runtime.ownership import Lease
from rota_coordinator.runtime.replicated_state import SlotState, Write
from rota_coordinator.runtime.slot import Slot
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import GroupMember, ProducerEnded, Record
from tests.simulation.history import History, Ticket
from tests.simulation.invariants import Violation
from tests.simulation.zoo_members import ZOO_MEMBERS

# Puts a bug in place, for as long as its block lasts.
Bug = Callable[[], AbstractContextManager[object]]


def replaced(target: object, name: str, wrong: object) -> Bug:
    """The bug of having this in that place."""
    return lambda: patch.object(target, name, wrong)


def answers_before_it_is_written(
    self: Slot, group_id: str, effects: Effects, *, changes: bool = True
) -> None:
    if effects.records:
        self.environment.store.append(self.number, self.epoch, effects.records)
    self._schedule(group_id)
    self._calls.send(effects)


def goes_on_after_an_unknown_outcome(
    self: Slot, stop_count: int, write: Write, done: "asyncio.Future[None]"
) -> None:
    done.exception()
    if stop_count == self._stop_count:
        for delivery in write.deliveries:
            delivery()
        self._last = None if self._last is write else self._last


def commits_are_not_checked(group: Group, request: Message, now_ms: MonotonicMs) -> int:
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


def heartbeats_do_not_count(self: Group, member: Member, now_ms: MonotonicMs) -> None:
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
    self.epoch, _ = await self.environment.store.claim(self.number)
    self.machine = Groups(self.environment.config)
    self.state = SlotState.READY
    for record in await self.environment.store.load(self.number):
        self.groups.replay(record)


def rounds_wait_for_nobody(self: Group) -> bool:
    return any(member.joining is not None for member in self.members)


def leaders_are_not_replaced(self: Members, member: Member) -> None:
    del self.by_id[member.member_id]
    if member.instance_id is not None:
        del self.instances[member.instance_id]


def old_generations_may_commit(group: Group, request: commit.Request, now_ms: MonotonicMs) -> int:
    found = group.members.identify(request.member_id, instance_of(request))
    return pb.NONE if isinstance(found, Member) else found


def lost_partitions_may_be_committed(
    group: Group, request: commit.Request, partition: object, metadata: str
) -> int:
    return pb.NONE


def instances_are_not_written(member: Member, protocol_name: str, assignment: bytes) -> GroupMember:
    written = described(member, protocol_name, assignment)
    written.ClearField("group_instance_id")
    return written


def the_old_one_speaks_for_its_instance(self: Members, member_id: str, instance_id: str | None) -> object:
    holder = self.instances.get(instance_id or "", member_id)
    return self.by_id.get(holder, pb.UNKNOWN_MEMBER_ID)


def who_waits_is_forgotten_with_its_member(group: Group, effects: Effects, member: Member) -> None:
    group.unsynced.discard(member.member_id)
    group.members.remove(member)


def copies_of_joins_both_wait(group: Group, effects: Effects, joining: Joining, member: Member) -> None:
    group.members.update(member, joining.request)
    member.joining = joining.call


def the_end_of_a_transaction_counts_and_not_its_commit(self: Offsets, ended: ProducerEnded) -> None:
    self._position += 1
    for partition, pending in self.pending.pop(ended.producer_id, {}).items():
        stored = self.committed.get(partition)
        if ended.committed and (stored is None or stored.position < pending.position):
            self.committed[partition] = Committed(self._position, pending.offset)


def snapshots_begin_with_what_is_committed(self: Offsets) -> list[Record]:
    records = OFFSETS(self)
    return sorted(records, key=lambda record: record.HasField("offset_pending"))


def offsets_of_living_groups_expire(
    group: Group, offsets: Offsets, effects: Effects, now_ms: MonotonicMs
) -> None:
    for partition in list(offsets.committed):
        offsets.write(removed(group.group_id, partition), effects)


def suspicions_stay(self: Group, member: Member, now_ms: MonotonicMs) -> None:
    member.session_deadline_ms = now_ms + member.session_timeout_ms


def sessions_go_on_while_nobody_serves(
    self: Groups, now_ms: MonotonicMs, handover: object
) -> dict[str, Effects]:
    return {group_id: Effects() for group_id in self.groups}


def ids_stay_handed_out(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    pass


def anybody_may_assign(
    group: Group, effects: Effects, call: Call, request: pb.SyncGroupRequest, now_ms: MonotonicMs
) -> None:
    match round.check_member(group, request.member_id, instance_of(request), request.generation_id):
        case Member() as member if not round.sync_error(group, request):
            member.syncing = call
            group.unsynced.discard(member.member_id)
            round.assign(group, effects, request, now_ms)
        case _:
            answer(effects, call, pb.SyncGroupResponse(error_code=pb.REBALANCE_IN_PROGRESS))


def reads_do_not_wait_for_writes(
    self: Slot, group_id: str, effects: Effects, *, changes: bool = True
) -> None:
    if effects.records or changes:
        PERFORM(self, group_id, effects, changes=changes)
    else:
        self._calls.send(effects)


def the_log_forgets_which_incarnations_were(self: Groups) -> list[Record]:
    return SNAPSHOT(self)[1:]


def the_snapshot_is_sent_late(self: Slot) -> None:
    snapshot = self.groups.snapshot()
    self._measure(len(snapshot))
    send = partial(self.environment.store.compact, self.number, self.epoch, snapshot)
    follow = lambda: self._follow(send(), lambda _: None)
    asyncio.get_running_loop().call_later(0.2, follow)


def waiting_calls_are_not_answered(self: Slot, error: pb.ErrorCode.ValueType = pb.NOT_COORDINATOR) -> None:
    self._calls._open.clear()
    STOP(self, error)


def refused_commits_are_kept(
    group: Group, offsets: Offsets, effects: Effects, request: commit.Request, now_ms: MonotonicMs
) -> tuple[pb.ErrorCode.ValueType, list[pb.TopicErrors]]:
    for topic in request.topics:
        template = commit.record_of_topic(request, topic, group.wall.at(now_ms))
        for partition in topic.partitions:
            offsets.write(commit.to_record(template, partition), effects)
    error = commit.refusal(group, request, now_ms)
    return error, copied(request, error)


def the_next_group_is_changed_too(self: Groups, record: Record) -> None:
    REPLAY(self, record)
    if record.WhichOneof("record") == "offset_committed":
        for offsets in self.offsets.values():
            offsets.replay(record)


def stable_groups_are_shaken_up(
    group: Group, effects: Effects, call: Call, request: pb.HeartbeatRequest, now_ms: MonotonicMs
) -> None:
    HEARTBEAT(group, effects, call, request, now_ms)
    if group.state is State.STABLE and now_ms - group.state_since_ms > 7_000:
        barrier.rebalance(group, effects, now_ms, Cause.JOINED, "it has been so for long")


def the_lease_counts_from_the_answer(self: Lease, until_ms: int) -> None:
    RENEWED(self, self.asked())


def by_the_assignment_alone(self: Group, partition: TopicPartition) -> str | None:
    return self.owners.get(partition)


def stalls_are_not_compensated(self: Slot, stall_ms: int) -> None:
    pass


# What is replaced, for those that only change a part of it.
PERFORM, STOP, SNAPSHOT, REPLAY = Slot._perform, Slot.stop, Groups.snapshot, Groups.replay
HEARTBEAT, RENEWED, OFFSETS = round.heartbeat, Lease.renewed, Offsets.snapshot

ZOO: dict[str, Bug] = {
    "answers before it is written": replaced(Slot, "_perform", answers_before_it_is_written),
    "goes on after an unknown outcome": replaced(Slot, "_written", goes_on_after_an_unknown_outcome),
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
    "old generations may commit": replaced(commit, "refusal", old_generations_may_commit),
    "lost partitions may be committed": replaced(commit, "partition_error", lost_partitions_may_be_committed),
    "instances are not written": replaced(state, "described", instances_are_not_written),
    "the old one speaks for its instance": replaced(Members, "identify", the_old_one_speaks_for_its_instance),
    "who waits is forgotten with its member": replaced(
        round, "remove", who_waits_is_forgotten_with_its_member
    ),
    "copies of joins both wait": replaced(join, "wait", copies_of_joins_both_wait),
    "the end of a transaction counts and not its commit": replaced(
        Offsets, "_end", the_end_of_a_transaction_counts_and_not_its_commit
    ),
    "snapshots begin with what is committed": replaced(
        Offsets, "snapshot", snapshots_begin_with_what_is_committed
    ),
    "offsets of living groups expire": replaced(admin, "expire_offsets", offsets_of_living_groups_expire),
    "suspicions stay": replaced(Group, "touch", suspicions_stay),
    "sessions go on while nobody serves": replaced(Groups, "loaded", sessions_go_on_while_nobody_serves),
    "ids stay handed out": replaced(expiry, "expire_pending", ids_stay_handed_out),
    "anybody may assign": replaced(round, "sync", anybody_may_assign),
    "reads do not wait for writes": replaced(Slot, "_perform", reads_do_not_wait_for_writes),
    "the log forgets which incarnations were": replaced(
        Groups, "snapshot", the_log_forgets_which_incarnations_were
    ),
    "the snapshot is sent late": replaced(Slot, "_compact", the_snapshot_is_sent_late),
    "those who wait are not told": replaced(Slot, "stop", waiting_calls_are_not_answered),
    "refused commits are kept": replaced(commit, "commit", refused_commits_are_kept),
    "stable groups are shaken up": replaced(round, "heartbeat", stable_groups_are_shaken_up),
    "goes on past its lease": replaced(Lease, "runs", lambda self: True),
    "the lease counts from the answer": replaced(Lease, "renewed", the_lease_counts_from_the_answer),
    "stalls are not compensated": replaced(Slot, "compensate_stall", stalls_are_not_compensated),
    "the next group is changed too": replaced(Groups, "replay", the_next_group_is_changed_too),
    "what is with nobody may be committed by all": replaced(Group, "owner_of", by_the_assignment_alone),
    **ZOO_MEMBERS,
}
# Where to begin to look for those that are rarely met; without it the first seeds are tried.
HINTS = {
    "the end of a transaction counts and not its commit": 5,
    "snapshots begin with what is committed": 5,
    "keeps the newest incarnation it hears of": 11,
    "the lease counts from the answer": 14,
    "rounds wait for nobody": 26,
    "sessions go on while nobody serves": 26,
    "reads do not wait for writes": 31,
    "stalls are not compensated": 60,
    "what is with nobody may be committed by all": 39,
    "who waits is forgotten with its member": 137,
    "counts no silence": 46,
    "counts two sessions": 86,
    "verdicts of any tenure count": 196,
}
# Rules that only come true in the end are broken by these.
LIVENESS = {
    "L1": "silence is not noticed",
    "L2": "stalls are not compensated",
    "L3": "stable groups are shaken up",
    "L5": "commits nothing",
    "L6": "who waits is forgotten with its member",
    "L7": "nobody looks at topics that grow",
}


def no_member_is_the_second_one(self: History, ticket: Ticket, reply: pb.JoinGroupResponse) -> None:
    if len(reply.members) == 2:
        raise Violation("S14", "a group has two members, which this canary forbids")


# Nothing is wrong with the code; the rule is. It shows that a broken rule is heard of.
CANARY = "a canary"
BUGS = ZOO | {CANARY: replaced(History, "joined", no_member_is_the_second_one)}
