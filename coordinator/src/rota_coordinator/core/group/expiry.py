"""Timers of a group: expired sessions, rounds, syncs and unused member ids, and the next time to check them."""

from rota_coordinator.core.group import barrier
from rota_coordinator.core.group.effects import Cause, Effects
from rota_coordinator.core.group.members import Member
from rota_coordinator.core.group.round import remove
from rota_coordinator.core.group.state import Group, State
from rota_coordinator.core.instants import MonotonicMs


def wake_at_ms(group: Group) -> int | None:
    """Return the next deadline of the group, when `pass_time` is due; None: no timer runs."""
    times = [*group.pending.values(), *(ends_at_ms(member) for member in group.members if can_expire(member))]
    if group.barrier is not None:
        times.append(group.barrier.deadline_ms)
        if group.all_joined() and not group.barrier.is_initial:
            times.append(group.barrier.open_until_ms)
    if group.sync_deadline_ms is not None:
        times.append(group.sync_deadline_ms)
    return min(times, default=None)


def pass_time(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Handle all timers that have expired."""
    expire_pending(group, effects, now_ms)
    for member in list(group.members):
        if can_expire(member) and now_ms >= ends_at_ms(member):
            expire_session(group, effects, member, now_ms)
    if group.sync_deadline_ms is not None and now_ms >= group.sync_deadline_ms:
        expire_sync(group, effects, now_ms)
    barrier.pass_time(group, effects, now_ms)


def compensate_stall(group: Group, stall_ms: int, now_ms: MonotonicMs) -> None:
    """
    Extend the group's deadlines by an event-loop stall of `stall_ms` that ended now.

    Bounds: a silent member gains at most one session timeout in total, a rebalance at most one rebalance timeout. An
    unused member id is not extended: its client joins again without it.
    """
    for member in group.members:
        left_ms = member.session_timeout_ms - member.compensated_ms
        if member.grace_until_ms is None:
            member.session_deadline_ms, gain_ms = extend_deadline(
                member.session_deadline_ms, stall_ms, left_ms, now_ms
            )
        else:
            member.grace_until_ms, gain_ms = extend_deadline(member.grace_until_ms, stall_ms, left_ms, now_ms)
        member.compensated_ms += gain_ms
    round_ms = group.members.rebalance_timeout_ms()
    barrier = group.barrier
    if barrier is not None and not barrier.is_initial:
        left_ms = round_ms - barrier.compensated_ms
        barrier.deadline_ms, gain_ms = extend_deadline(barrier.deadline_ms, stall_ms, left_ms, now_ms)
        barrier.compensated_ms += gain_ms
    if group.sync_deadline_ms is not None:
        left_ms = round_ms - group.sync_compensated_ms
        group.sync_deadline_ms, gain_ms = extend_deadline(group.sync_deadline_ms, stall_ms, left_ms, now_ms)
        group.sync_compensated_ms += gain_ms


def extend_deadline(deadline_ms: int, stall_ms: int, left_ms: int, now_ms: int) -> tuple[int, int]:
    """
    Return the deadline extended by a stall that ended now, and the milliseconds gained, at most `left_ms`.

    A deadline that had passed before the stall began stays unchanged.
    """
    without_ms = max(deadline_ms, now_ms)
    gain_ms = min(max(deadline_ms + stall_ms - without_ms, 0), max(left_ms, 0))
    return (without_ms + gain_ms if gain_ms else deadline_ms), gain_ms


def can_expire(member: Member) -> bool:
    """Return whether a member may expire: one with a parked call cannot, except a new member."""
    return member.is_new or (member.joining is None and member.syncing is None)


def ends_at_ms(member: Member) -> int:
    """Return the time at which the member's session ends, or its grace period if the session has expired."""
    return member.session_deadline_ms if member.grace_until_ms is None else member.grace_until_ms


def expire_pending(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Remove assigned member ids that were not used in time."""
    late = [member_id for member_id, deadline_ms in group.pending.items() if now_ms >= deadline_ms]
    for member_id in late:
        del group.pending[member_id]
    if late and group.state is State.PREPARING and group.members.by_id and group.all_joined():
        # Close a first round too: the last expected member does not join.
        barrier.close(group, effects, now_ms)


def expire_session(group: Group, effects: Effects, member: Member, now_ms: MonotonicMs) -> None:
    """Give a member whose session expired the grace period, then remove it and rebalance."""
    grace_ms = group.config.rebalance_coalesce_ms
    if member.grace_until_ms is None and not member.is_new and grace_ms:
        member.grace_until_ms = now_ms + grace_ms
        return
    remove(group, effects, member)
    reason = f"member {member.member_id} sent no heartbeat within its session timeout"
    barrier.rebalance(group, effects, now_ms, Cause.SILENT, reason)


def expire_sync(group: Group, effects: Effects, now_ms: MonotonicMs) -> None:
    """Remove the members that did not sync in time, whether or not they sent heartbeats."""
    group.sync_deadline_ms = None
    missing = sorted(group.unsynced)
    for member_id in missing:
        member = group.members.by_id.get(member_id)
        if member is not None:
            remove(group, effects, member)
    group.unsynced.clear()
    barrier.rebalance(group, effects, now_ms, Cause.NEVER_SYNCED, f"{len(missing)} members never synced")
