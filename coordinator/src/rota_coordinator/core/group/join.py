"""Decide a JoinGroup: admission, member id, and need of a new round, in Kafka's order. Called by `groups`."""

from dataclasses import dataclass

from rota_coordinator.core.group import barrier
from rota_coordinator.core.group.config import PENDING_MEMBERS_MAX
from rota_coordinator.core.group.effects import Call, Cause, Effects
from rota_coordinator.core.group.members import Member, instance_of, offered
from rota_coordinator.core.group.state import Group, State, answer
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.coordinator.v1 import coordinator_pb2 as pb


@dataclass(frozen=True, slots=True)
class Joining:
    """A join with the values that the shell adds: client host, principal, and a UUID for a new member id."""

    call: Call
    request: pb.JoinGroupRequest
    client_host: str
    new_uuid: str  # a new UUID
    principal: str = ""  # charged for the group if this join creates it

    @property
    def instance_id(self) -> str | None:
        return instance_of(self.request)


def refuse(effects: Effects, joining: Joining, error: pb.ErrorCode.ValueType, member_id: str) -> None:
    """Answer the join with an error."""
    reply = pb.JoinGroupResponse(error_code=error, generation_id=-1, member_id=member_id)
    answer(effects, joining.call, reply)


def join(group: Group, effects: Effects, joining: Joining, now_ms: MonotonicMs) -> None:
    """Decide a join; it is answered at once, or parked until its round closes."""
    request = joining.request
    if not has_room(group, request.member_id):
        member = group.members.by_id.get(request.member_id)
        if member is not None:
            group.drop(member, effects)
        refuse(effects, joining, pb.GROUP_MAX_SIZE_REACHED, "")
        barrier.close_if_complete(group, effects, now_ms)
    elif not is_compatible(group, request):
        refuse(effects, joining, pb.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    elif not request.member_id:
        join_without_id(group, effects, joining, now_ms)
    elif request.member_id in group.pending:
        join_with_given_id(group, effects, joining, now_ms)
    else:
        match group.members.identify(request.member_id, joining.instance_id):
            case Member() as member:
                rejoin(group, effects, joining, member, now_ms)
            case error:
                refuse(effects, joining, error, request.member_id)


def has_room(group: Group, member_id: str) -> bool:
    """Return whether the group is below its limit, or already counts the joining member."""
    match group.state:
        case State.EMPTY:
            return True
        case State.PREPARING if len(group.members) < group.config.members_max:
            return True  # whatever number of joins is parked
        case State.PREPARING:
            waiting = [member for member in group.members if member.joining is not None]
            return len(waiting) < group.config.members_max or any(
                each.member_id == member_id for each in waiting
            )
        case State.COMPLETING | State.STABLE:
            return member_id in group.members.by_id or len(group.members) < group.config.members_max


def is_compatible(group: Group, request: pb.JoinGroupRequest) -> bool:
    """Return whether the protocols of the joining member fit the group; an empty group accepts any."""
    if group.state is State.EMPTY:
        return bool(request.protocol_type) and bool(request.protocols)
    return request.protocol_type == group.protocol_type and group.members.accept(offered(request))


def join_without_id(group: Group, effects: Effects, joining: Joining, now_ms: MonotonicMs) -> None:
    """Handle a join without id: a dynamic member gets an id to rejoin with, a static member is added or returns."""
    request = joining.request
    if joining.instance_id is None and len(group.pending) >= PENDING_MEMBERS_MAX:
        refuse(effects, joining, pb.GROUP_MAX_SIZE_REACHED, "")
        return
    if joining.instance_id is None:
        member_id = f"{request.client_id}-{joining.new_uuid}"
        group.pending[member_id] = now_ms + request.session_timeout_ms
        refuse(effects, joining, pb.MEMBER_ID_REQUIRED, member_id)
        return
    member_id = f"{joining.instance_id}-{joining.new_uuid}"
    holder = group.members.instances.get(joining.instance_id)
    if holder is None:
        enter(group, effects, joining, member_id, now_ms)
    else:
        come_back(group, effects, joining, group.members.by_id[holder], now_ms)


def join_with_given_id(group: Group, effects: Effects, joining: Joining, now_ms: MonotonicMs) -> None:
    """Handle the second join of a dynamic member, with the id that the first one was assigned."""
    if joining.instance_id is not None:
        refuse(effects, joining, pb.UNKNOWN_SERVER_ERROR, joining.request.member_id)
        return
    del group.pending[joining.request.member_id]
    enter(group, effects, joining, joining.request.member_id, now_ms)


def enter(group: Group, effects: Effects, joining: Joining, member_id: str, now_ms: MonotonicMs) -> None:
    """Add a new member, and park its join until its first round closes."""
    request = joining.request
    if not group.members.by_id:
        group.protocol_type = request.protocol_type
        group.subscribed = None  # unknown until its first round is complete
    member = Member(
        member_id=member_id,
        instance_id=joining.instance_id,
        client_id=request.client_id,
        client_host=joining.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=offered(request),
        joining=joining.call,
        session_deadline_ms=now_ms + group.config.new_member_join_timeout_ms,
    )
    group.members.add(member)
    if group.barrier is not None and group.barrier.is_initial:
        group.barrier.extended = True
    reason = f": {request.reason}" if request.reason else ""
    barrier.rebalance(group, effects, now_ms, Cause.JOINED, f"member {member_id} joined{reason}")


def rejoin(group: Group, effects: Effects, joining: Joining, member: Member, now_ms: MonotonicMs) -> None:
    """
    Handle the join of an existing member: into the open round, as a retry in the present one, or opening a new one.
    """
    same = member.protocols == offered(joining.request)
    leads = member.member_id == group.members.leader
    match group.state:
        case State.COMPLETING if same:
            answer(effects, joining.call, barrier.joined(group, member))
        case State.STABLE if same and not leads:
            answer(effects, joining.call, barrier.joined(group, member))
        case State.PREPARING | State.COMPLETING | State.STABLE:
            wait(group, effects, joining, member)
            why = joining.request.reason or ("it is the leader" if same else "its protocols changed")
            reason = f"member {member.member_id} rejoined: {why}"
            barrier.rebalance(group, effects, now_ms, Cause.JOINED_AGAIN, reason)
        case State.EMPTY:
            raise AssertionError(f"group {group.group_id} is empty and has member {member.member_id}")


def wait(group: Group, effects: Effects, joining: Joining, member: Member) -> None:
    """Park the member's join in the barrier; its earlier parked join is superseded."""
    if member.joining is not None:
        effects.superseded.append(member.joining)
    group.members.update(member, joining.request)
    member.client_host = joining.client_host
    member.joining = joining.call


def come_back(group: Group, effects: Effects, joining: Joining, member: Member, now_ms: MonotonicMs) -> None:
    """
    Handle a static member that returns without its id: it takes over its membership under a new id; the old is fenced.
    """
    old_id = member.member_id
    if member.joining is not None:
        fenced = pb.JoinGroupResponse(error_code=pb.FENCED_INSTANCE_ID, generation_id=-1, member_id=old_id)
        answer(effects, member.joining, fenced)
        member.joining = None
    answer(effects, member.syncing, pb.SyncGroupResponse(error_code=pb.FENCED_INSTANCE_ID))
    member.syncing = None
    group.members.rename(member, f"{member.instance_id}-{joining.new_uuid}")
    if old_id in group.unsynced:
        # The sync is expected under the new id, because the old one is no longer a member.
        group.unsynced = group.unsynced - {old_id} | {member.member_id}
    effects.removed_members.append((group.group_id, old_id))
    group.touch(member, now_ms)  # with the old session timeout, until the next request of the member
    # As in Kafka, only the first join of a member may expire while it is parked; this one waits for the round to close.
    member.is_new = False
    group.members.update(member, joining.request)
    member.client_host = joining.client_host
    if group.state is State.STABLE and group.members.elect_protocol() == group.protocol_name:
        assignments = {each.member_id: each.assignment for each in group.members}
        group.write(group.record(assignments, group.state_since_ms), effects)
        leads = member.member_id == group.members.leader
        answer(effects, joining.call, barrier.joined(group, member, skip_assignment=leads))
        return
    member.joining = joining.call
    reason = f"static member {member.instance_id} rejoined"
    barrier.rebalance(group, effects, now_ms, Cause.CAME_BACK, reason)
