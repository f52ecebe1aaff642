"""Requests of members within a generation: SyncGroup, Heartbeat and LeaveGroup. Called by `groups`."""

from rota_coordinator.core.group import barrier
from rota_coordinator.core.group.config import PARTITIONS_MAX
from rota_coordinator.core.group.consumer_protocol import assigned_partitions
from rota_coordinator.core.group.effects import Call, Cause, Effects
from rota_coordinator.core.group.members import Member, instance_of
from rota_coordinator.core.group.state import Group, State, answer
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.consumer_protocol import PROTOCOL_TYPE
from rota_proto.coordinator.v1 import coordinator_pb2 as pb


def check_member(
    group: Group, member_id: str, instance_id: str | None, generation_id: int
) -> Member | pb.ErrorCode.ValueType:
    """Return the member of the request, or the error; identity is checked before the generation, as in Kafka."""
    found = group.members.identify(member_id, instance_id)
    if isinstance(found, Member) and generation_id != group.generation:
        return pb.ILLEGAL_GENERATION
    return found


def sync(
    group: Group, effects: Effects, call: Call, request: pb.SyncGroupRequest, now_ms: MonotonicMs
) -> None:
    """Handle SyncGroup: the leader submits the assignment, and every member receives its part."""
    match check_member(group, request.member_id, instance_of(request), request.generation_id):
        case Member() as member:
            error = sync_error(group, request)
        case refusal:
            answer(effects, call, pb.SyncGroupResponse(error_code=refusal))
            return
    if error:
        answer(effects, call, pb.SyncGroupResponse(error_code=error))
        return
    if member.syncing is not None:
        effects.superseded.append(member.syncing)
    member.syncing = call
    group.unsynced.discard(member.member_id)
    if group.state is State.STABLE:
        answer_sync(group, effects, member)
    elif member.member_id == group.members.leader:
        assign(group, effects, request, now_ms)
    if not group.unsynced:
        group.sync_deadline_ms = None


def sync_error(group: Group, request: pb.SyncGroupRequest) -> pb.ErrorCode.ValueType:
    """Return why a member of this generation may not sync; NONE if it may."""
    if request.protocol_type != group.protocol_type or request.protocol_name != group.protocol_name:
        return pb.INCONSISTENT_GROUP_PROTOCOL
    if assigns_too_much(group, request):
        return pb.POLICY_VIOLATION
    return pb.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else pb.NONE


def assigns_too_much(group: Group, request: pb.SyncGroupRequest) -> bool:
    """Return whether the leader assigns more partitions than a group may have."""
    if group.protocol_type != PROTOCOL_TYPE or request.member_id != group.members.leader:
        return False
    # A partition takes at least four bytes, so most assignments need no decoding.
    if sum(len(each.assignment) for each in request.assignments) <= 4 * PARTITIONS_MAX:
        return False
    return (
        sum(len(assigned_partitions(each.assignment) or ()) for each in request.assignments) > PARTITIONS_MAX
    )


def assign(group: Group, effects: Effects, request: pb.SyncGroupRequest, now_ms: MonotonicMs) -> None:
    """Write the leader's assignment, then answer every parked SyncGroup."""
    assignments = {each.member_id: each.assignment for each in request.assignments}
    group.write(group.record(assignments, group.wall.at(now_ms)), effects)
    barrier.settle(group, effects, now_ms)
    for member in group.members:
        if member.syncing is not None:
            group.touch(member, now_ms)
            answer_sync(group, effects, member)


def answer_sync(group: Group, effects: Effects, member: Member) -> None:
    """Answer the member's parked SyncGroup with its assignment."""
    reply = pb.SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
    answer(effects, member.syncing, reply)
    member.syncing = None


def heartbeat(
    group: Group, effects: Effects, call: Call, request: pb.HeartbeatRequest, now_ms: MonotonicMs
) -> None:
    """Extend the member's session, and report an open rebalance."""
    match check_member(group, request.member_id, instance_of(request), request.generation_id):
        case Member() as member:
            group.touch(member, now_ms)
            error = pb.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else pb.NONE
        case refusal:
            error = refusal
    answer(effects, call, pb.HeartbeatResponse(error_code=error))


def leave(
    group: Group, effects: Effects, call: Call, request: pb.LeaveGroupRequest, now_ms: MonotonicMs
) -> None:
    """Handle LeaveGroup: remove the members entry by entry, then rebalance once if any was removed."""
    results = []
    for leaving in request.members:
        error = leave_one(group, effects, leaving)
        results.append(
            pb.LeftMember(
                member_id=leaving.member_id,
                group_instance_id=instance_of(leaving),
                error_code=error,
            )
        )
    answer(effects, call, pb.LeaveGroupResponse(members=results))
    gone = [result for result in results if result.error_code == pb.NONE]
    if gone and group.state is not State.EMPTY:
        # An administrator removes a static member by its instance id alone.
        name = gone[0].member_id or gone[0].group_instance_id
        who = f"member {name}" if len(gone) == 1 else f"{len(gone)} members"
        reason = f": {request.members[0].reason}" if request.members[0].reason else ""
        barrier.rebalance(group, effects, now_ms, Cause.LEFT, f"{who} left{reason}")


def leave_one(group: Group, effects: Effects, leaving: pb.LeavingMember) -> pb.ErrorCode.ValueType:
    """Remove the member of one LeaveGroup entry, and return the entry's error."""
    instance_id = instance_of(leaving)
    if not leaving.member_id:
        # An administrator removes an instance, whichever member holds it.
        holder = None if instance_id is None else group.members.instances.get(instance_id)
        if holder is None:
            return pb.UNKNOWN_MEMBER_ID
        remove(group, effects, group.members.by_id[holder])
        return pb.NONE
    if group.pending.pop(leaving.member_id, None) is not None:
        return pb.NONE
    match group.members.identify(leaving.member_id, instance_id):
        case Member() as member:
            remove(group, effects, member)
            return pb.NONE
        case error:
            return error


def remove(group: Group, effects: Effects, member: Member) -> None:
    """Remove a member. Its parked calls are answered with UNKNOWN_MEMBER_ID, so that no call hangs."""
    unknown = pb.JoinGroupResponse(error_code=pb.UNKNOWN_MEMBER_ID, generation_id=-1)
    answer(effects, member.joining, unknown)
    answer(effects, member.syncing, pb.SyncGroupResponse(error_code=pb.UNKNOWN_MEMBER_ID))
    group.unsynced.discard(member.member_id)
    group.drop(member, effects)
