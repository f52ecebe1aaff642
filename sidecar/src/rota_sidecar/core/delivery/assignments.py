"""
The owned partitions, and what the application knows of them: attachments, assignment events, revocations.

The application gets records of a partition only after it has acknowledged the ASSIGNED event of that partition. `revoke` stops
dispatch and notifies the application. `release` reports the revocation to the member when all records in flight are completed and
committed, or shortly before the deadline.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.commits import CommitBatch
from rota_sidecar.core.delivery.context import Context, Timer, Traits
from rota_sidecar.core.delivery.dispatch import Dispatcher
from rota_sidecar.core.delivery.membership import Membership
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.member.partitions import Partition, Tenure

# The application's deadline precedes that of the revocation by 1/MARGIN_PART of the time that is left, at most MARGIN_MAX_MS.
# The remaining time is for the commit; it ends half of the margin before the revocation's deadline.
MARGIN_PART = 5
MARGIN_MAX_MS = 5_000


class UnacknowledgedEvent(NamedTuple):
    """Assignment event that the application has not acknowledged."""

    kind: do.Kind
    partitions: frozenset[Partition]
    since_ms: int


class Revocation(NamedTuple):
    """Partitions that are revoked together. Invariant: `application_deadline_ms` <= `commit_deadline_ms`."""

    partitions: frozenset[Partition]
    # From this time on the core waits for commits only, and from the second one on for nothing.
    application_deadline_ms: int
    commit_deadline_ms: int


class Assignments:
    """Invariant: the partitions of all revocations are owned and Revoking, and none of the others is."""

    def __init__(
        self,
        context: Context,
        partition_states: dict[Partition, PartitionState],
        membership: Membership,
        dispatcher: Dispatcher,
        commits: CommitBatch,
    ) -> None:
        self._context = context
        self._partition_states = partition_states
        self._membership = membership
        self._dispatcher = dispatcher
        self._commits = commits
        # The attached application.
        self._session: int | None = None
        self._unacknowledged: dict[int, UnacknowledgedEvent] = {}
        self._revocations: dict[int, Revocation] = {}
        # Tenure of the last assignment; None before the first one and after all partitions were removed.
        self._tenure: Tenure | None = None
        # All partitions that this sidecar ever owned, by topic.
        self._known_partitions: dict[str, set[Partition]] = {}

    @property
    def tenure(self) -> Tenure | None:
        """Return the tenure of the last assignment; None before the first one and after all partitions were removed."""
        return self._tenure

    # ------------------------------------------------------------------------------------------ application

    def attach(self, event: on.Attached) -> None:
        """Attach an application, and notify it of all partitions that it gets."""
        if self._session is not None:
            # The driver attaches one application at a time, so the earlier one has crashed.
            self.detach(on.Detached(self._session, clean=False))
        self._session = event.session
        traits = Traits(event.commits_itself, event.reads_itself, event.takes_many, event.takes_commits)
        self._context.change(traits=traits, is_attached=True)
        self._dispatcher.attach()
        self._membership.attached()
        for partition_state in self._partition_states.values():
            partition_state.pause(paused=False)
        self._notify_all()

    def detach(self, event: on.Detached) -> None:
        """Detach the application; its records in flight are delivered again. The member keeps its partitions: a container restarts soon."""
        if self._session != event.session:
            return
        self._session = None
        self._unacknowledged.clear()
        self._context.change(is_attached=False)
        self._membership.detached(clean=event.clean)
        for partition_state in self._partition_states.values():
            partition_state.detach(clean=event.clean)
        self._context.touch_all(self._partition_states)

    @property
    def is_application_ready(self) -> bool:
        """Return True if an application is attached that has acknowledged its partitions."""
        return self._session is not None and self.unacknowledged_since_ms is None

    @property
    def unacknowledged_since_ms(self) -> int | None:
        """Return the time in ms since which an assignment is not acknowledged; None: all are."""
        return min(
            (each.since_ms for each in self._unacknowledged.values() if each.kind is do.Kind.ASSIGNED),
            default=None,
        )

    def acknowledge(self, event: on.Acknowledged) -> None:
        """Handle the application's acknowledgement of an assignment event."""
        pending = self._unacknowledged.pop(event.event_id, None)
        if pending is None:
            return
        if pending.kind is do.Kind.LOST:
            self._membership.expect_no_verdicts(pending.partitions)
            return
        for partition_state in self._owned(pending.partitions):
            partition_state.acknowledge(event.event_id)

    def _notify(
        self,
        kind: do.Kind,
        partition_states: Iterable[PartitionState],
        tenure: Tenure | None,
        deadline_ms: int | None = None,
        reason: str = "",
    ) -> int | None:
        """Notify the application; return the event's id, None if no application is attached."""
        if self._session is None:
            return None
        event_id = self._context.number()
        partitions = frozenset(partition_state.partition for partition_state in partition_states)
        if kind is not do.Kind.REVOKED:
            # The core does not wait for the acknowledgement of REVOKED.
            self._unacknowledged[event_id] = UnacknowledgedEvent(kind, partitions, self._context.now_ms)
        self._context.emit(do.AssignmentEvent(event_id, kind, partitions, tenure, deadline_ms, reason))
        return event_id

    def _notify_all(self) -> None:
        """Send one ASSIGNED event for each tenure, in ascending order; also for the latest tenure if it brought no partition."""
        tenures = {
            partition_state.tenure.number: partition_state.tenure
            for partition_state in self._partition_states.values()
            if not partition_state.is_revoking
        }
        if self._tenure is not None:
            tenures[self._tenure.number] = self._tenure
        for _, tenure in sorted(tenures.items()):
            self._notify_assigned(tenure)

    def _notify_assigned(self, tenure: Tenure) -> None:
        """Send ASSIGNED with the partitions of this tenure; their records follow after the acknowledgement."""
        partition_states = [
            partition_state
            for partition_state in self._partition_states.values()
            if partition_state.tenure == tenure and not partition_state.is_revoking
        ]
        event_id = self._notify(do.Kind.ASSIGNED, partition_states, tenure)
        if event_id is not None:
            self._context.watch_progress()
        for partition_state in partition_states:
            partition_state.announce(event_id)

    # ------------------------------------------------------------------------------------------ assignments

    def _owned(self, partitions: Iterable[Partition]) -> list[PartitionState]:
        """Return the owned ones of these partitions, sorted, so that equal events lead to equal actions."""
        return [
            partition_state
            for partition in sorted(partitions)
            if (partition_state := self._partition_states.get(partition)) is not None
        ]

    def assigned(self, event: on.Assigned) -> None:
        """Add newly assigned partitions, and notify the application; their committed offsets are fetched next."""
        context = self._context
        self._tenure = event.tenure
        self._membership.assigned(is_manual=event.is_manual)
        known_topics = frozenset(self._known_partitions)
        for partition in sorted(event.partitions):
            known_partitions = self._known_partitions.setdefault(partition.topic, set())
            appeared_later = (
                context.conditions.commits_by_itself
                and partition.topic in known_topics
                and partition not in known_partitions
            )
            known_partitions.add(partition)
            self._partition_states[partition] = PartitionState(
                context, partition, event.tenure, is_manual=event.is_manual, appeared_later=appeared_later
            )
            context.touch(partition)
        self._notify_assigned(event.tenure)

    def revoked(self, event: on.Revoked) -> None:
        """Remove partitions that the member has released."""
        reason = self._membership.lost_reason
        self._remove(event.partitions, do.Kind.LOST if reason else do.Kind.REVOKED, reason)

    def lost(self, event: on.Lost) -> None:
        """Remove partitions that were lost: nothing is committed, whatever is in flight."""
        self._remove(event.partitions, do.Kind.LOST, event.reason)

    def _remove(self, partitions: Iterable[Partition], kind: do.Kind, reason: str) -> None:
        """Remove partitions, and notify the application of those that it knows."""
        going = self._owned(partitions)
        for partition_state in going:
            partition = partition_state.partition
            self._membership.retire(partition_state)
            partition_state.remove()
            self._dispatcher.remove(partition)
            self._commits.remove(partition)
            self._context.untouch(partition)
            del self._partition_states[partition]
        for number, revocation in list(self._revocations.items()):
            left = revocation.partitions.difference(partition_state.partition for partition_state in going)
            self._revocations[number] = revocation._replace(partitions=left)
            if not left:
                self._end(number)
        if not self._partition_states:
            # Until the next assignment there is no tenure to announce to an application.
            self._tenure = None
        notified = [partition_state for partition_state in going if partition_state.is_announced]
        if notified:
            self._notify(kind, notified, _tenure(notified), reason=reason)

    # ------------------------------------------------------------------------------------------ revocations

    def revoke(self, event: on.Revoke) -> None:
        """Begin a revocation: stop dispatch, notify the application, and wait for verdicts and commits."""
        now_ms, is_hanging = self._context.now_ms, self._membership.is_hanging
        margin_ms = min(max(event.deadline_ms - now_ms, 0) // MARGIN_PART, MARGIN_MAX_MS)
        going = self._owned(event.partitions)
        revocation = Revocation(
            frozenset(partition_state.partition for partition_state in going),
            # The member leaves because the application hangs, so its verdicts are not waited for.
            application_deadline_ms=now_ms if is_hanging else event.deadline_ms - margin_ms,
            commit_deadline_ms=event.deadline_ms - margin_ms // 2,
        )
        self._revocations[event.revocation] = revocation
        new = [partition_state for partition_state in going if not partition_state.is_revoking]
        for partition_state in new:
            partition_state.revoke()
        if not is_hanging:
            self._notify_revoking(new, revocation.application_deadline_ms)
        for partition_state in going:
            self._context.touch(partition_state.partition)
        self.time_passes(event.revocation)

    def _notify_revoking(self, partition_states: Iterable[PartitionState], until_ms: int) -> None:
        """Send REVOKING with the partitions that were announced to the application; `until_ms` is its deadline."""
        notified = [partition_state for partition_state in partition_states if partition_state.is_announced]
        if notified:
            event_id = self._notify(do.Kind.REVOKING, notified, _tenure(notified), until_ms)
            for partition_state in notified:
                partition_state.announce(event_id)

    @property
    def has_revocations(self) -> bool:
        """Return True during a revocation."""
        return bool(self._revocations)

    def time_passes(self, number: int) -> None:
        """Handle the deadlines of a revocation that have passed, and set its timer."""
        revocation = self._revocations.get(number)
        if revocation is None:
            return
        next_ms, now_ms = revocation.application_deadline_ms, self._context.now_ms
        if now_ms >= next_ms:
            next_ms = revocation.commit_deadline_ms
            for partition_state in self._owned(revocation.partitions):
                partition_state.time_out()
        self._context.set_timer(Timer.REVOKE, number, max(next_ms, now_ms))

    def release(self) -> None:
        """Finish all revocations whose partitions are settled, or whose commit deadline has passed."""
        for number, revocation in list(self._revocations.items()):
            partition_states = self._owned(revocation.partitions)
            if self._context.now_ms < revocation.commit_deadline_ms and not all(
                partition_state.is_releasable for partition_state in partition_states
            ):
                continue
            self._end(number)
            for partition_state in partition_states:
                # A later revocation of the partition, with more time, may be under way.
                goes_on = any(
                    partition_state.partition in other.partitions for other in self._revocations.values()
                )
                partition_state.release(released=not goes_on)
            self._context.emit(do.ReleasePartitions(number))

    def _end(self, number: int) -> None:
        del self._revocations[number]
        self._context.stop_timer(Timer.REVOKE, number)


def _tenure(partition_states: Iterable[PartitionState]) -> Tenure | None:
    """Return the common tenure of these partitions; None if they have several."""
    tenures = {partition_state.tenure for partition_state in partition_states}
    return tenures.pop() if len(tenures) == 1 else None
