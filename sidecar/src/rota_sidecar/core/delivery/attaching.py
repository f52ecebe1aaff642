"""
The application's session: attach, assignment events, acknowledgements, detach.

The application gets records of a partition only after it has acknowledged the ASSIGNED event of that partition.
"""

from collections.abc import Iterable

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.core import Application, Core, Traits, UnacknowledgedEvent
from rota_sidecar.core.delivery.partition import PartitionState, Revoking
from rota_sidecar.core.member.partitions import Tenure


def attached(core: Core, event: on.Attached) -> None:
    """Attach an application, and notify it of all partitions that it gets."""
    if core.application is not None:
        # The driver attaches one application at a time, so the earlier one has crashed.
        detached(core, on.Detached(core.application.session, clean=False))
    core.application = Application(event.session)
    if core.draining is not None:
        core.draining.said_goodbye = False
    core.traits = Traits(event.commits_itself, event.reads_itself, event.takes_many, event.takes_commits)
    core.retired.clear()
    for partition_state in core.partition_states.values():
        partition_state.paused = False
    core.set_terms()
    _notify_all(core)


def detached(core: Core, event: on.Detached) -> None:
    """Detach the application; its records in flight are delivered again. The member keeps its partitions: a container restarts soon."""
    if core.application is None or core.application.session != event.session:
        return
    core.application = None
    if core.draining is not None:
        core.draining.said_goodbye = event.clean
    core.retired.clear()
    for partition_state in core.partition_states.values():
        partition_state.assigned_event_id, partition_state.acknowledged = None, False
        if isinstance(partition_state.state, Revoking):
            partition_state.state.event_id = None
        _take_back(core, partition_state, clean=event.clean)
        if not core.commits_by_itself:
            initial_position.begin_at_committed(core, partition_state)
    core.touch_all()


# ---------------------------------------------------------------------------------------------- assignment events


def _event(
    core: Core,
    kind: do.Kind,
    partition_states: Iterable[PartitionState],
    tenure: Tenure | None,
    deadline_ms: int | None = None,
    reason: str = "",
) -> int | None:
    """Notify the application; return the event's id, None if no application is attached."""
    application = core.application
    if application is None:
        return None
    event_id, partitions = (
        core.number(),
        frozenset(partition_state.partition for partition_state in partition_states),
    )
    if kind is not do.Kind.REVOKED:
        # The core does not wait for the acknowledgement of REVOKED.
        application.unacknowledged[event_id] = UnacknowledgedEvent(kind, partitions, core.now_ms)
    core.actions.append(do.AssignmentEvent(event_id, kind, partitions, tenure, deadline_ms, reason))
    return event_id


def _notify_all(core: Core) -> None:
    """Send one ASSIGNED event for each tenure, in ascending order; also for the latest tenure if it brought no partition."""
    staying = [
        partition_state
        for partition_state in core.partition_states.values()
        if not isinstance(partition_state.state, Revoking)
    ]
    tenures = {partition_state.tenure.number: partition_state.tenure for partition_state in staying}
    if core.tenure is not None:
        tenures[core.tenure.number] = core.tenure
    for _, tenure in sorted(tenures.items()):
        notify_assigned(core, tenure)


def notify_assigned(core: Core, tenure: Tenure) -> None:
    """Send ASSIGNED with the partitions of this tenure; their records follow after the acknowledgement."""
    partition_states = [
        partition_state
        for partition_state in core.partition_states.values()
        if partition_state.tenure == tenure and not isinstance(partition_state.state, Revoking)
    ]
    event_id = _event(core, do.Kind.ASSIGNED, partition_states, tenure)
    if event_id is not None:
        core.watch_progress()
    for partition_state in partition_states:
        partition_state.assigned_event_id = event_id


def notify_revoking(core: Core, partition_states: Iterable[PartitionState], until_ms: int) -> None:
    """Send REVOKING with the partitions that were announced to the application; `until_ms` is its deadline."""
    notified = [
        partition_state
        for partition_state in partition_states
        if partition_state.assigned_event_id is not None
    ]
    if notified:
        event_id = _event(core, do.Kind.REVOKING, notified, _tenure(notified), until_ms)
        for partition_state in notified:
            assert isinstance(partition_state.state, Revoking)
            partition_state.state.event_id = event_id


def notify(core: Core, kind: do.Kind, partition_states: list[PartitionState], reason: str = "") -> None:
    """Send REVOKED or LOST with these partitions, unless there are none."""
    if partition_states:
        _event(core, kind, partition_states, _tenure(partition_states), reason=reason)


def _tenure(partition_states: Iterable[PartitionState]) -> Tenure | None:
    """Return the common tenure of these partitions; None if they have several."""
    tenures = {partition_state.tenure for partition_state in partition_states}
    return tenures.pop() if len(tenures) == 1 else None


def acknowledged(core: Core, event: on.Acknowledged) -> None:
    """Handle the application's acknowledgement of an assignment event."""
    if core.application is None:
        return
    pending = core.application.unacknowledged.pop(event.event_id, None)
    if pending is not None and pending.kind is do.Kind.LOST:
        # The application no longer works on these partitions, so no verdict is expected on their records.
        core.retired = {
            number: (partition, ledger)
            for number, (partition, ledger) in core.retired.items()
            if partition not in pending.partitions
        }
        return
    for partition in () if pending is None else sorted(pending.partitions):
        partition_state = core.partition_states.get(partition)
        if partition_state is None:
            continue
        if partition_state.assigned_event_id == event.event_id:
            partition_state.acknowledged = True
            core.report_errors(partition_state)
        if isinstance(partition_state.state, Revoking) and partition_state.state.event_id == event.event_id:
            partition_state.state.event_id = None
            # The application drops the records that it did not start, and gives no verdict on them.
            _take_back(core, partition_state, clean=True)
        core.touch(partition_state)


def _take_back(core: Core, partition_state: PartitionState, *, clean: bool) -> None:
    """Return the partition's records in flight to the ledger."""
    if partition_state.fetch_session is not None:
        partition_state.fetch_session.ledger.application_gone(core.now_ms, clean=clean)
        core.recount(partition_state.fetch_session)
