"""Drain before the process ends: stop dispatch, commit completed records, report the end with Drained, leave the group."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import commits
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core, Draining, InGroup, Leaving, Timer


def drain(core: Core, event: on.Drain) -> None:
    """Begin to drain, or replace the deadline of the drain under way; each call is answered with Drained."""
    former = core.draining
    core.draining = Draining(event.deadline_ms, event.leaves_group)
    if former is not None:
        core.draining.said_goodbye, core.draining.has_successor = former.said_goodbye, former.has_successor
    core.timers[Timer.DRAIN, None] = event.deadline_ms
    core.touch_all()


def undrain(core: Core) -> None:
    """Resume dispatch; a drain under way is answered with the number of records in flight."""
    if core.draining is not None and not core.draining.is_reported:
        core.actions.append(do.Drained(core.in_flight))
    core.draining = None
    core.timers.pop((Timer.DRAIN, None), None)
    core.touch_all()


def report_drained(core: Core) -> None:
    """Emit Drained once for each drain: when no record is in flight and all is committed, or at the deadline."""
    draining = core.draining
    if draining is None or draining.is_reported:
        return
    if core.now_ms >= draining.deadline_ms or _is_done(core):
        draining.is_reported = True
        core.timers.pop((Timer.DRAIN, None), None)
        core.actions.append(do.Drained(core.in_flight))


def leave_group(core: Core) -> None:
    """
    Leave the group once it is drained and the application has said goodbye, which a pod that terminates does, or a successor waits.

    Others take the partitions over before Kubernetes notices that the application has ended, and ends the sidecar too.
    """
    draining = core.draining
    if draining is None or not (draining.leaves_group and draining.is_reported):
        return
    if not (draining.said_goodbye or draining.has_successor):
        return
    owns = any(not partition_state.is_manual for partition_state in core.partition_states.values())
    if owns and not core.in_flight and isinstance(core.membership, InGroup):
        why = "a successor waits" if draining.has_successor else "the application has ended during a drain"
        reason = f"{why}: the member leaves the group, and rejoins if the drain expires"
        core.membership = Leaving(reason, is_drained=True)
        core.actions.append(do.Leave(reason, is_drained=True, has_successor=draining.has_successor))


def _is_done(core: Core) -> bool:
    if core.in_flight:
        return False
    return all(
        (partition_state.fetch_session is None or partition_state.fetch_session.is_replaceable)
        and commits.has_settled(core, partition_state)
        for partition_state in core.partition_states.values()
    )
