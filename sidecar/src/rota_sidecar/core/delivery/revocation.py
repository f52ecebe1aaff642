"""
Revocations and losses of partitions.

`revoke` stops dispatch and notifies the application. `release` reports the revocation to the member when all records in
flight are completed and committed, or shortly before the deadline.
"""

from collections.abc import Iterable

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import attaching, commits
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core, Leaving, Revocation, Timer
from rota_sidecar.core.delivery.partition import PartitionState, Revoking
from rota_sidecar.core.member.partitions import Partition

# The application's deadline precedes that of the revocation by 1/MARGIN_PART of the time that is left, at most MARGIN_MAX_MS.
# The remaining time is for the commit; it ends half of the margin before the revocation's deadline.
MARGIN_PART = 5
MARGIN_MAX_MS = 5_000


def revoke(core: Core, event: on.Revoke) -> None:
    """Begin a revocation: stop dispatch, notify the application, and wait for verdicts and commits."""
    left_ms = max(event.deadline_ms - core.now_ms, 0)
    margin_ms = min(left_ms // MARGIN_PART, MARGIN_MAX_MS)
    application_deadline_ms, commit_deadline_ms = (
        event.deadline_ms - margin_ms,
        event.deadline_ms - margin_ms // 2,
    )
    if _hangs(core):
        # The member leaves because the application hangs, so its verdicts are not waited for.
        application_deadline_ms = core.now_ms
    going = _held(core, event.partitions)
    core.revocations[event.revocation] = Revocation(
        {partition_state.partition for partition_state in going},
        application_deadline_ms=application_deadline_ms,
        commit_deadline_ms=commit_deadline_ms,
    )
    new = [partition_state for partition_state in going if not isinstance(partition_state.state, Revoking)]
    for partition_state in new:
        _stop(core, partition_state)
    if not _hangs(core):
        attaching.notify_revoking(core, new, application_deadline_ms)
    for partition_state in going:
        core.touch(partition_state)
    core.timers[Timer.REVOKE, event.revocation] = core.now_ms
    time_passes(core, event.revocation)


def _hangs(core: Core) -> bool:
    """Return whether the member leaves because its application hangs. One that is drained leaves while its application may run."""
    return isinstance(core.membership, Leaving) and not core.membership.is_drained


def _held(core: Core, partitions: Iterable[Partition]) -> list[PartitionState]:
    """Return the owned ones of these partitions, sorted, so that equal events lead to equal actions."""
    return [
        partition_state
        for partition in sorted(partitions)
        if (partition_state := core.partition_states.get(partition)) is not None
    ]


def _stop(core: Core, partition_state: PartitionState) -> None:
    fetch_session = partition_state.fetch_session
    core.dequeue(partition_state)
    for timer in (Timer.BEGIN, Timer.READ, Timer.RETRY):
        core.timers.pop((timer, partition_state.partition), None)
    if fetch_session is not None:
        core.stop_fetching(fetch_session)
    core.answer_lookup(partition_state, pb.ILLEGAL_GENERATION)
    partition_state.state = Revoking(fetch_session)


def time_passes(core: Core, number: int) -> None:
    """Handle the deadlines of a revocation that have passed, and set its timer."""
    revocation = core.revocations.get(number)
    if revocation is None:
        return
    next_ms = revocation.application_deadline_ms
    if core.now_ms >= revocation.application_deadline_ms:
        next_ms = revocation.commit_deadline_ms
        for partition_state in _partition_states(core, revocation):
            assert isinstance(partition_state.state, Revoking)
            partition_state.state.timed_out = True
            core.touch(partition_state)
    core.timers[Timer.REVOKE, number] = max(next_ms, core.now_ms)


def _partition_states(core: Core, revocation: Revocation) -> list[PartitionState]:
    return [core.partition_states[partition] for partition in sorted(revocation.partitions)]


def release(core: Core) -> None:
    """Finish all revocations whose partitions are settled, or whose commit deadline has passed."""
    for number, revocation in list(core.revocations.items()):
        partition_states = _partition_states(core, revocation)
        if core.now_ms < revocation.commit_deadline_ms and not all(
            _has_gone(core, partition_state) for partition_state in partition_states
        ):
            continue
        _end(core, number)
        for partition_state in partition_states:
            assert isinstance(partition_state.state, Revoking)
            # A later revocation of the partition, with more time, may be under way.
            partition_state.state.released = not any(
                partition_state.partition in other.partitions for other in core.revocations.values()
            )
        core.actions.append(do.ReleasePartitions(number))


def _has_gone(core: Core, partition_state: PartitionState) -> bool:
    state = partition_state.state
    return isinstance(state, Revoking) and state.is_finished and commits.has_settled(core, partition_state)


def _end(core: Core, number: int) -> None:
    del core.revocations[number]
    core.timers.pop((Timer.REVOKE, number), None)


def revoked(core: Core, event: on.Revoked) -> None:
    """Remove partitions that the member has released."""
    notified = _remove(core, event.partitions)
    match core.membership:
        case Leaving(reason=reason, is_drained=False):
            attaching.notify(core, do.Kind.LOST, notified, reason=reason)
        case _:
            attaching.notify(core, do.Kind.REVOKED, notified)


def lost(core: Core, event: on.Lost) -> None:
    """Remove partitions that were lost: nothing is committed, whatever is in flight."""
    notified = _remove(core, event.partitions)
    attaching.notify(core, do.Kind.LOST, notified, reason=event.reason)


def _remove(core: Core, partitions: Iterable[Partition]) -> list[PartitionState]:
    """Remove partitions; return those that were announced to the application."""
    going = _held(core, partitions)
    for partition_state in going:
        core.remove(partition_state)
    for number, revocation in list(core.revocations.items()):
        revocation.partitions.difference_update(partition_state.partition for partition_state in going)
        if not revocation.partitions:
            _end(core, number)
    if not core.partition_states:
        # Until the next assignment there is no tenure to announce to an application.
        core.tenure = None
    return [partition_state for partition_state in going if partition_state.assigned_event_id is not None]
