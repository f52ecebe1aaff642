"""The application: it comes, is notified what it has, acknowledges that, and goes."""

from collections.abc import Iterable

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.core import Application, Core, Traits, UnacknowledgedEvent
from rota_sidecar.core.delivery.partition import PartitionState, Revoking
from rota_sidecar.core.member.partitions import Tenure


def attached(core: Core, event: on.Attached) -> None:
    """Attach an application, which knows of no partition yet."""
    if core.application is not None:
        # There is one at a time: the other one cannot be there any more.
        detached(core, on.Detached(core.application.session, clean=False))
    core.application = Application(event.session)
    core.traits = Traits(event.commits_itself, event.reads_itself, event.takes_many)
    core.retired.clear()
    for partition_state in core.partition_states.values():
        partition_state.paused = False
    core.set_terms()
    _notify_all(core)


def detached(core: Core, event: on.Detached) -> None:
    """Detach the application; its records are delivered again. The partitions stay: its container may be back in a moment."""
    if core.application is None or core.application.session != event.session:
        return
    core.application = None
    core.retired.clear()
    for partition_state in core.partition_states.values():
        partition_state.assigned_event_id, partition_state.acknowledged = None, False
        if isinstance(partition_state.state, Revoking):
            partition_state.state.event_id = None
        _take_back(core, partition_state, clean=event.clean)
        if not core.commits_by_itself:
            initial_position.begin_at_committed(core, partition_state)
    core.touch_all()


# ---------------------------------------------------------------------------------------------- what it is notified


def _event(
    core: Core,
    kind: do.Kind,
    partition_states: Iterable[PartitionState],
    tenure: Tenure | None,
    deadline_ms: int | None = None,
    reason: str = "",
) -> int | None:
    """Notify the application, and return the event's id; None: no application is attached."""
    application = core.application
    if application is None:
        return None
    event_id, partitions = (
        core.number(),
        frozenset(partition_state.partition for partition_state in partition_states),
    )
    if kind is not do.Kind.REVOKED:
        # Nothing depends on whether that one is acknowledged.
        application.unacknowledged[event_id] = UnacknowledgedEvent(kind, partitions, core.now_ms)
    core.actions.append(do.AssignmentEvent(event_id, kind, partitions, tenure, deadline_ms, reason))
    return event_id


def _notify_all(core: Core) -> None:
    """Of everything that stays, by tenure; and of the tenure of now, though nothing may have come with it."""
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
    """Notify the application of the partitions of this tenure; it gets their records once it has acknowledged."""
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
    """Notify the application that these partitions are being revoked."""
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
    """Notify the application that these partitions are gone."""
    if partition_states:
        _event(core, kind, partition_states, _tenure(partition_states), reason=reason)


def _tenure(partition_states: Iterable[PartitionState]) -> Tenure | None:
    """The one of all of them, if there is one."""
    tenures = {partition_state.tenure for partition_state in partition_states}
    return tenures.pop() if len(tenures) == 1 else None


def acknowledged(core: Core, event: on.Acknowledged) -> None:
    """Note that the application has handled an event."""
    if core.application is None:
        return
    pending = core.application.unacknowledged.pop(event.event_id, None)
    if pending is not None and pending.kind is do.Kind.LOST:
        # It has stopped working on them, and gives no verdict on the rest.
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
            # What it still has of it, it has not begun, and gives no verdict on.
            _take_back(core, partition_state, clean=True)
        core.touch(partition_state)


def _take_back(core: Core, partition_state: PartitionState, *, clean: bool) -> None:
    """Return the partition's records in flight to the ledger."""
    if partition_state.fetch_session is not None:
        partition_state.fetch_session.ledger.application_gone(core.now_ms, clean=clean)
        core.recount(partition_state.fetch_session)
