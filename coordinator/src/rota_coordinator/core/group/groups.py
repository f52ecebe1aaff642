"""
Groups of one slot. The entry point of the group core: requests and time come in, Effects go out.

Called by the slot, which passes each request with its call id to `decide`. Every method looks its group up, checks what
does not need the group, and delegates the decision. To load, the slot calls `replay` for every record, then `loaded` once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import Message

from rota_coordinator.core.group import admin, barrier, commit, expiry, round, transactions
from rota_coordinator.core.group.answers import AdminRequest, Request, group_of, refused
from rota_coordinator.core.group.config import GROUP_ID_LENGTH_MAX, GroupConfig
from rota_coordinator.core.group.effects import Call, Cause, Effects
from rota_coordinator.core.group.join import Joining, join, refuse
from rota_coordinator.core.group.members import instance_of
from rota_coordinator.core.group.offsets import Offsets
from rota_coordinator.core.group.state import Group, State, answer
from rota_coordinator.core.instants import MonotonicMs, WallClock
from rota_proto.coordinator.v1 import admin_pb2 as admin_pb
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import (
    GenerationReserved,
    GroupRemoved,
    HandoverSnapshot,
    MemberSession,
    ProducerEnded,
    Record,
)

MemberRequest = pb.SyncGroupRequest | pb.HeartbeatRequest | pb.LeaveGroupRequest


class Origin(NamedTuple):
    """The sender of a request, and the new member id that it may need."""

    client_host: str
    # Charged for a group that the request creates.
    principal: str
    new_uuid: Callable[[], str]  # returns a new UUID


@dataclass(slots=True)
class Groups:
    """The groups and offsets of one slot. Invariant: no group has a higher incarnation than `incarnation`."""

    config: GroupConfig
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    # The highest incarnation of any group of this slot, removed groups included; the next group gets a higher one.
    incarnation: int = 0
    # Wall clock of timestamps; the time of requests is on the monotonic clock.
    wall: WallClock = field(default_factory=WallClock)

    def decide(self, call: Call, request: Request, origin: Origin, now_ms: MonotonicMs) -> Effects:
        """Handle a request of any kind."""
        match request:
            case pb.HeartbeatRequest() | pb.SyncGroupRequest() | pb.LeaveGroupRequest():
                return self.handle(call, request, now_ms)
            case pb.CommitOffsetsRequest() | pb.TxnCommitOffsetsRequest():
                return self.commit(call, request, now_ms, origin.principal)
            case pb.JoinGroupRequest():
                joining = Joining(call, request, origin.client_host, origin.new_uuid(), origin.principal)
                return self.join(joining, now_ms)
            case pb.FetchOffsetsRequest():
                return self.fetch(call, request)
            case _:
                return self.administer(call, request, now_ms, origin.principal)

    def join(self, joining: Joining, now_ms: MonotonicMs) -> Effects:
        """Handle JoinGroup."""
        effects = Effects()
        request = joining.request
        config = self.config
        if not is_group_id(request.group_id):
            refuse(effects, joining, pb.INVALID_GROUP_ID, request.member_id)
        elif not config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max:
            refuse(effects, joining, pb.INVALID_SESSION_TIMEOUT, request.member_id)
        elif request.group_id not in self.groups and request.member_id:
            refuse(effects, joining, pb.UNKNOWN_MEMBER_ID, request.member_id)
        else:
            group = self._get_or_create(request.group_id, joining.principal, effects, now_ms)
            join(group, effects, joining, now_ms)
        return effects

    def handle(self, call: Call, request: MemberRequest, now_ms: MonotonicMs) -> Effects:
        """Handle SyncGroup, Heartbeat and LeaveGroup of a member."""
        effects = Effects()
        group = self.groups.get(request.group_id)
        if not is_group_id(request.group_id):
            answer(effects, call, refused(request, pb.INVALID_GROUP_ID))
        elif isinstance(request, pb.SyncGroupRequest) and not (
            request.protocol_type and request.protocol_name
        ):
            answer(effects, call, refused(request, pb.INCONSISTENT_GROUP_PROTOCOL))
        elif group is None:
            answer(effects, call, unknown_group(request))
        else:
            match request:
                case pb.SyncGroupRequest():
                    round.sync(group, effects, call, request, now_ms)
                case pb.HeartbeatRequest():
                    round.heartbeat(group, effects, call, request, now_ms)
                case pb.LeaveGroupRequest():
                    round.leave(group, effects, call, request, now_ms)
        return effects

    def commit(
        self, call: Call, request: commit.Request, now_ms: MonotonicMs, principal: str = ""
    ) -> Effects:
        """Handle CommitOffsets and TxnCommitOffsets; a group that is created is charged to the principal."""
        effects = Effects()
        transactional = isinstance(request, pb.TxnCommitOffsetsRequest)
        respond = pb.TxnCommitOffsetsResponse if transactional else pb.CommitOffsetsResponse
        error: pb.ErrorCode.ValueType = pb.NONE
        # As in Kafka, offsets may be committed under the empty group id, but not in a transaction.
        if len(request.group_id) > GROUP_ID_LENGTH_MAX or (transactional and not request.group_id):
            error = pb.INVALID_GROUP_ID
        elif request.group_id not in self.groups and request.generation_id >= 0:
            error = pb.ILLEGAL_GENERATION if transactional else pb.GROUP_ID_NOT_FOUND
        if error:
            answer(effects, call, refused(request, error))
            return effects
        group = self._get_or_create(request.group_id, principal, effects, now_ms)
        error, topics = commit.commit(group, self.offsets[request.group_id], effects, request, now_ms)
        answer(effects, call, respond(error_code=error, topics=topics))
        return effects

    def fetch(self, call: Call, request: pb.FetchOffsetsRequest) -> Effects:
        """Handle FetchOffsets; the caller need not be a member, and an unknown group has no committed offsets."""
        effects = Effects()
        offsets = self.offsets.get(request.group_id) or Offsets()
        topics = offsets.everything() if request.all else request.topics
        fetched = offsets.fetch(topics, require_stable=request.require_stable)
        answer(effects, call, pb.FetchOffsetsResponse(topics=fetched))
        return effects

    def administer(
        self, call: Call, request: AdminRequest, now_ms: MonotonicMs, principal: str = ""
    ) -> Effects:
        """Handle an Admin request about one group; a group that is created is charged to the principal."""
        effects = Effects()
        group_id = group_of(request)
        group = self.groups.get(group_id)
        match request:
            case admin_pb.DescribeGroupsRequest():
                found = admin.unknown(group_id) if group is None else admin.described(group)
                answer(effects, call, admin_pb.DescribeGroupsResponse(groups=[found]))
            case admin_pb.DeleteGroupsRequest():
                error = admin.deletion_error(group)
                if group is not None and not error:
                    self._remove(group, effects)
                answer(effects, call, refused(request, error))
            case admin_pb.DeleteOffsetsRequest() | admin_pb.AlterOffsetsRequest() if (
                not may_change_offsets_of(group_id, request)
            ):
                answer(effects, call, refused(request, pb.INVALID_GROUP_ID))
            case admin_pb.DeleteOffsetsRequest():
                if group is None:
                    answer(effects, call, refused(request, pb.GROUP_ID_NOT_FOUND))
                else:
                    deleted = admin.delete_offsets(group, self.offsets[group_id], effects, request)
                    answer(effects, call, deleted)
            case admin_pb.AlterOffsetsRequest():
                group = self._get_or_create(group_id, principal, effects, now_ms)
                altered = admin.alter_offsets(
                    group, self.offsets[group_id], effects, request, self.wall.at(now_ms)
                )
                answer(effects, call, altered)
        return effects

    def expire_offsets(self, group_id: str, now_ms: MonotonicMs) -> Effects:
        """Delete offsets beyond the retention time, and the group once it has no offsets and no members."""
        effects = Effects()
        group, offsets = self.groups[group_id], self.offsets[group_id]
        admin.expire_offsets(group, offsets, effects, self.wall.at(now_ms))
        if group.state is State.EMPTY and offsets.is_empty() and not group.pending:
            self._remove(group, effects)
        return effects

    def membership_error(self, member: pb.TxnCommitOffsetsRequest) -> pb.ErrorCode.ValueType:
        """Return the error that keeps a member from ending a transaction with offsets of its group; NONE if it may."""
        return transactions.membership_error(self.groups.get(member.group_id), member)

    def end_transaction(self, group_id: str, ended: ProducerEnded) -> Effects:
        """Commit or drop the group's offsets in a producer's transaction, when the transaction ends."""
        effects = Effects()
        if group_id in self.offsets:
            transactions.end(self.offsets[group_id], effects, group_id, ended)
        return effects

    def forget_topic(self, group_id: str, topic: str) -> Effects:
        """Delete the group's offsets of a deleted topic."""
        effects = Effects()
        transactions.forget_topic(self.offsets[group_id], effects, group_id, topic)
        return effects

    def _remove(self, group: Group, effects: Effects) -> None:
        record = admin.removal(group)
        effects.records.append(record)
        self.replay(record)

    def compensate_stall(self, stall_ms: int, now_ms: MonotonicMs) -> None:
        """Extend the deadlines of all groups by a stall of this process that ended now."""
        for group in self.groups.values():
            expiry.compensate_stall(group, stall_ms, now_ms)

    def wake_at_ms(self, group_id: str) -> int | None:
        """Return the time of the next `pass_time` of a group; None: no timer runs."""
        group = self.groups.get(group_id)
        return None if group is None else expiry.wake_at_ms(group)

    def pass_time(self, group_id: str, now_ms: MonotonicMs) -> Effects:
        """Handle the expired timers of a group."""
        effects = Effects()
        group = self.groups.get(group_id)
        if group is not None:
            expiry.pass_time(group, effects, now_ms)
        return effects

    def replay(self, record: Record) -> None:
        """Apply a record from the store; called in write order."""
        match record.WhichOneof("record"):
            case "offset_committed":
                offset = record.offset_committed
                self._offsets_of(offset.group_id).replay_commit(offset)
            case "group":
                self._replay_group(record.group.group_id, record)
                self.incarnation = max(self.incarnation, record.group.incarnation)
            case "generation_reserved":
                self._replay_group(record.generation_reserved.group_id, record)
            case "group_removed":
                self.groups.pop(record.group_removed.group_id, None)
                self.offsets.pop(record.group_removed.group_id, None)
                self.incarnation = max(self.incarnation, record.group_removed.incarnation)
            case "offset_removed":
                self._offsets_of(record.offset_removed.group_id).replay(record)
            case "offset_pending":
                self._offsets_of(record.offset_pending.offset.group_id).replay(record)
            case "producer_ended":
                self._offsets_of(record.producer_ended.group_id).replay(record)
            case _:
                pass  # a record of a later version

    def snapshot(self) -> list[Record]:
        """Return the compacted log: the records that restore the present state."""
        # Removed groups leave only the highest incarnation behind; a later group of the same name gets a higher one.
        records = [Record(group_removed=GroupRemoved(incarnation=self.incarnation))]
        for group_id, group in self.groups.items():
            assert group.durable is not None
            records.append(Record(group=group.durable))
            if group.reserved_generation > group.durable.generation_id:
                reserved = GenerationReserved(group_id=group_id, generation_id=group.reserved_generation)
                records.append(Record(generation_reserved=reserved))
        for offsets in self.offsets.values():
            records += offsets.snapshot()
        return records

    def handover(self, now_ms: MonotonicMs) -> HandoverSnapshot:
        """Return the state that the next owner of the slot needs and the log does not contain."""
        return HandoverSnapshot(
            sessions=[
                MemberSession(
                    group_id=group_id,
                    member_id=member.member_id,
                    remaining_ms=max(member.session_deadline_ms - now_ms, 0),
                )
                for group_id, group in self.groups.items()
                for member in group.members
            ]
        )

    def loaded(self, now_ms: MonotonicMs, handover: HandoverSnapshot) -> dict[str, Effects]:
        """
        Finish loading after all records were replayed, and return the effects by group id.

        Every member gets a full session timeout from now, or the rest that the previous owner's handover states.
        """
        left = {(each.group_id, each.member_id): each.remaining_ms for each in handover.sessions}
        effects = {group_id: Effects() for group_id in self.groups}
        for group_id, group in self.groups.items():
            for member in group.members:
                group.touch(member, now_ms)
                remaining_ms = left.get((group_id, member.member_id), member.session_timeout_ms)
                member.session_deadline_ms = now_ms + min(remaining_ms, member.session_timeout_ms)
            if len(group.members) > self.config.members_max:
                reason = "the group exceeds the maximum size"
                barrier.rebalance(group, effects[group_id], now_ms, Cause.TOO_LARGE, reason)
        return effects

    def _replay_group(self, group_id: str, record: Record) -> None:
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self.config, incarnation=0, wall=self.wall)
            self._offsets_of(group_id)
        self.groups[group_id].replay(record)

    def _offsets_of(self, group_id: str) -> Offsets:
        offsets = self.offsets.get(group_id)
        if offsets is None:
            offsets = self.offsets[group_id] = Offsets()
        return offsets

    def _get_or_create(self, group_id: str, principal: str, effects: Effects, now_ms: MonotonicMs) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            self.incarnation += 1
            group = Group(group_id, self.config, self.incarnation, wall=self.wall, created_by=principal)
            self.groups[group_id] = group
            self.offsets[group_id] = Offsets()
            group.write(group.record({}, self.wall.at(now_ms)), effects)
        return group


def is_group_id(group_id: str) -> bool:
    """Return whether the name is valid for a group with members."""
    return 0 < len(group_id) <= GROUP_ID_LENGTH_MAX


def may_change_offsets_of(
    group_id: str, request: admin_pb.DeleteOffsetsRequest | admin_pb.AlterOffsetsRequest
) -> bool:
    """Return whether offsets of this group id may be changed. Under the empty id offsets are set, but never deleted."""
    if isinstance(request, admin_pb.DeleteOffsetsRequest):
        return bool(group_id)
    return len(group_id) <= GROUP_ID_LENGTH_MAX


def unknown_group(request: MemberRequest) -> Message:
    """Return the response for a group that does not exist; for LeaveGroup the error is that of each entry."""
    if isinstance(request, pb.LeaveGroupRequest):
        members = [
            pb.LeftMember(
                member_id=leaving.member_id,
                group_instance_id=instance_of(leaving),
                error_code=pb.UNKNOWN_MEMBER_ID,
            )
            for leaving in request.members
        ]
        return pb.LeaveGroupResponse(members=members)
    return refused(request, pb.UNKNOWN_MEMBER_ID)
