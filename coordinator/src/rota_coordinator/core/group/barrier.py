"""
The join phase of a rebalance: a round of joins opens, members join, and closing it starts the next generation.

Called on joins, leaves and expired sessions, which make a round necessary, and by `expiry` when its deadline passes.
"""

from rota_coordinator.core.group.effects import Cause, Effects, RoundOpened, RoundSettled
from rota_coordinator.core.group.members import Member
from rota_coordinator.core.group.state import Barrier, Group, State, answer, subscribed_by
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import GenerationReserved, Record

# Minimum interval, in ms, between checks of a round whose members are all absent.
ABSENT_CHECK_MS_MIN = 100


def rebalance(group: Group, effects: Effects, now_ms: MonotonicMs, cause: Cause, reason: str) -> None:
    """Open a round of joins, or close the open one if it is complete. `reason` appears in logs and descriptions."""
    if group.state is State.PREPARING:
        close_if_complete(group, effects, now_ms)
        return
    if group.state is State.COMPLETING:
        for member in group.members:
            member.assignment = b""
            if member.syncing is not None:
                # A member sends no heartbeat while its sync is parked: as in Kafka, its session starts with the
                # response.
                group.touch(member, now_ms)
            answer(effects, member.syncing, pb.SyncGroupResponse(error_code=pb.REBALANCE_IN_PROGRESS))
            member.syncing = None
    group.unsynced, group.sync_deadline_ms = set(), None
    group.barrier = opened(group, now_ms)
    group.opened_by = reason
    group.enter(State.PREPARING, group.wall.at(now_ms))
    effects.rounds.append(RoundOpened(group.group_id, group.generation, cause))
    if group.unsettled_since_ms is None:
        group.unsettled_since_ms = now_ms
    effects.notices += [
        pb.RebalanceNotice(
            group_id=group.group_id,
            member_id=member.member_id,
            generation_id=group.generation,
            reason=reason,
        )
        for member in group.members
        if member.joining is None
    ]
    close_if_complete(group, effects, now_ms)


def opened(group: Group, now_ms: MonotonicMs) -> Barrier:
    """
    Return a new round with its deadline.

    The round of an empty group stays open for the initial rebalance delay, which each new member extends.
    """
    timeout_ms = group.members.rebalance_timeout_ms()
    if group.state is State.EMPTY:
        delay_ms = group.config.initial_rebalance_delay_ms
        return Barrier(
            deadline_ms=now_ms + delay_ms,
            open_until_ms=now_ms,
            is_initial=True,
            delay_ms=delay_ms,
            remaining_ms=max(timeout_ms - delay_ms, 0),
        )
    # Without members there are no joins to coalesce: the group becomes empty at once.
    coalesce_ms = group.config.rebalance_coalesce_ms if group.members.by_id else 0
    return Barrier(deadline_ms=now_ms + timeout_ms, open_until_ms=now_ms + coalesce_ms)


def close_if_complete(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Close the round once every member has joined; a first round always lasts its full delay."""
    barrier = group.barrier
    if barrier is None or barrier.is_initial or not group.all_joined():
        return
    if now_ms >= barrier.open_until_ms or not group.members.by_id:
        close(group, effects, now_ms)


def pass_time(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Close the round if it is complete; at its deadline, close it or extend the first round."""
    barrier = group.barrier
    if barrier is None:
        return
    if now_ms < barrier.deadline_ms:
        close_if_complete(group, effects, now_ms)
    elif barrier.is_initial and barrier.extended and barrier.remaining_ms:
        spent_ms = barrier.delay_ms
        barrier.extended = False
        barrier.delay_ms = min(group.config.initial_rebalance_delay_ms, barrier.remaining_ms)
        barrier.deadline_ms += barrier.delay_ms
        barrier.remaining_ms = max(barrier.remaining_ms - spent_ms, 0)
    else:
        close(group, effects, now_ms)


def close(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """
    Start a generation with the members that joined. Dynamic members that did not join are removed, static members stay.
    """
    for member in [each for each in group.members if each.joining is None and each.instance_id is None]:
        group.drop(member, effects)
    present = [member for member in group.members if member.joining is not None]
    if group.members.by_id and not present:
        # Only absent static members are left: keep the round open until their sessions expire.
        assert group.barrier is not None
        wait_ms = max(group.members.rebalance_timeout_ms(), ABSENT_CHECK_MS_MIN)
        group.barrier = Barrier(now_ms + wait_ms, open_until_ms=now_ms)
        return
    if present and group.members.by_id[group.members.leader].joining is None:
        group.members.leader = present[0].member_id
    # Written before any member receives the generation, so that a crash cannot issue it twice.
    reserved = GenerationReserved(group_id=group.group_id, generation_id=group.reserved_generation + 1)
    group.write(Record(generation_reserved=reserved), effects)
    group.generation = group.reserved_generation
    if present:
        start_generation(group, effects, now_ms)
    else:
        empty(group, effects, now_ms)


def empty(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Make the group empty after its last member left; the group and its offsets remain."""
    group.members.leader = ""
    group.protocol_name = ""
    group.write(group.record({}, group.wall.at(now_ms)), effects)
    settle(group, effects, now_ms)


def settle(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Report the end of the rebalance: the group has an assignment again, or no members."""
    if group.unsettled_since_ms is not None:
        unsettled_ms = now_ms - group.unsettled_since_ms
        settled = RoundSettled(group.group_id, group.generation, len(group.members), unsettled_ms)
        effects.rounds.append(settled)
        group.unsettled_since_ms = None


def start_generation(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Answer every parked join with the new generation, and start waiting for the leader's assignment."""
    group.protocol_name = group.members.elect_protocol()
    metadata = [member.metadata(group.protocol_name) for member in group.members]
    group.subscribed = subscribed_by(group.protocol_type, metadata)
    group.barrier = None
    group.enter(State.COMPLETING, group.wall.at(now_ms))
    for member in group.members:
        group.touch(member, now_ms)
        member.is_new = False
        answer(effects, member.joining, joined(group, member))
        member.joining = None
    group.unsynced = set(group.members.by_id)
    group.sync_deadline_ms = now_ms + group.members.rebalance_timeout_ms()
    group.sync_compensated_ms = 0


def joined(group: Group, member: Member, *, skip_assignment: bool = False) -> pb.JoinGroupResponse:
    """Return the response to a join: the present generation, and for the leader also the members."""
    known = group.members if member.member_id == group.members.leader else ()
    return pb.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.members.leader,
        member_id=member.member_id,
        skip_assignment=skip_assignment,
        members=[
            pb.Member(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                metadata=other.metadata(group.protocol_name),
            )
            for other in known
        ],
    )
