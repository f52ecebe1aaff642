"""
Progress of the application: a hung application must not keep its partitions because its sidecar is healthy.

A member of the classic protocol cannot give back a single partition. So the member leaves the group with a reason, and
rejoins when the application has settled the records that it held.
"""

from collections.abc import Iterator

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery.core import Core, InGroup, Leaving, OutOfGroup, Timer


def _waiting_since(core: Core) -> Iterator[tuple[int, str]]:
    """Yield (time in ms, reason) for each record, event or attachment for which the core waits since then."""
    within = f"within {core.config.processing_timeout_ms / 1000:g} s"
    for partition_state in core.partition_states.values():
        since_ms = (
            None
            if partition_state.fetch_session is None
            else partition_state.fetch_session.ledger.in_flight_since_ms
        )
        if since_ms is not None and not partition_state.is_manual:
            name = f"{partition_state.partition.topic}-{partition_state.partition.number}"
            yield since_ms, f"the application has given no verdict on a record of {name} {within}"
    if core.application is not None:
        for pending in core.application.unacknowledged.values():
            if pending.kind is do.Kind.ASSIGNED:
                yield pending.since_ms, f"the application has not acknowledged its partitions {within}"
    if core.unattended_since_ms is not None:
        yield core.unattended_since_ms, f"no application has attached {within}, and there are records"


def note_unattended(core: Core) -> None:
    """Note the time since which records wait without an application; a suspended or draining sidecar does not count."""
    is_meant = core.config.suspended or core.draining is not None
    waits = core.application is None and any(
        not partition_state.is_manual for partition_state in core.dispatch_queue.values()
    )
    if is_meant or not waits:
        core.unattended_since_ms = None
    elif core.unattended_since_ms is None:
        core.unattended_since_ms = core.now_ms
        core.watch_progress()


def check(core: Core) -> None:
    """Leave the group if the application exceeds the processing timeout; else schedule the next check."""
    core.timers.pop((Timer.PROGRESS, None), None)
    if not isinstance(core.membership, InGroup):
        return
    oldest = min(_waiting_since(core), default=None)
    if oldest is None:
        return
    since_ms, reason = oldest
    due_ms = since_ms + core.config.processing_timeout_ms
    if core.now_ms < due_ms:
        core.timers[Timer.PROGRESS, None] = due_ms
    elif any(not partition_state.is_manual for partition_state in core.partition_states.values()):
        reason += ": the member leaves the group, and rejoins when the application makes progress"
        core.membership = Leaving(reason)
        core.actions.append(do.Leave(reason))
        core.report_problem_of_all(reason)


def left_group(core: Core) -> None:
    """Handle the end of Leave: the member is out of the group."""
    if isinstance(core.membership, Leaving):
        core.membership = OutOfGroup(core.membership.reason, is_drained=core.membership.is_drained)


def rejoin_when_ready(core: Core) -> None:
    """Rejoin once the drain has ended, or an application is attached that holds no record and has acknowledged its assignments."""
    if not isinstance(core.membership, OutOfGroup):
        return
    is_ready = core.draining is None if core.membership.is_drained else _is_application_ready(core)
    if is_ready:
        core.membership = InGroup()
        core.actions.append(do.Rejoin())


def _is_application_ready(core: Core) -> bool:
    if core.application is None or core.retired:
        return False
    return all(pending.kind is not do.Kind.ASSIGNED for pending in core.application.unacknowledged.values())


def readiness(core: Core) -> str:
    """Return why the member left the group, or is leaving it; empty: it is in the group."""
    match core.membership:
        case InGroup():
            return ""
        case Leaving(reason=reason) | OutOfGroup(reason=reason):
            return reason
