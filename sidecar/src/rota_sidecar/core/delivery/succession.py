"""
Serve the application of a pod that ends until its successor waits; then drain, see `draining`.

For members whose instance or membership Fleet passes on to another pod, which starts only after this one has begun to end. The wait ends
with HandOver, at its time limit, and as soon as nothing is served: the application has gone, or the member has left the group.
"""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import draining
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import AwaitingSuccessor, Core, InGroup, Timer


def drain(core: Core, event: on.Drain) -> None:
    """Wait for a successor, if the order permits it and the application is served; else drain. A repeated order waits no longer."""
    if event.serves_until_ms is None or core.draining is not None or not _is_serving(core):
        _begin(core, event)
        return
    former, until_ms = core.awaiting_successor, event.serves_until_ms
    if former is None:
        core.actions.append(do.AwaitSuccessor(until_ms))
    else:
        until_ms = min(until_ms, former.until_ms)
    core.awaiting_successor = AwaitingSuccessor(until_ms, event)
    core.timers[Timer.DRAIN, None] = until_ms


def undrain(core: Core) -> None:
    """Resume as if no drain had been ordered; one under way is answered."""
    if core.awaiting_successor is not None:
        core.awaiting_successor = None
        core.actions.append(do.Drained(core.in_flight))
    draining.undrain(core)


def hand_over(core: Core, event: on.HandOver) -> None:
    """Drain now. With a successor the member leaves once it is drained: the application's goodbye is not waited for."""
    _end(core)
    if event.has_successor and core.draining is not None:
        core.draining.has_successor = True


def application_gone(core: Core, event: on.Detached) -> None:
    """Drain, because there is no application to serve."""
    if core.application is None and _end(core) and core.draining is not None:
        core.draining.said_goodbye = event.clean


def end_when_over(core: Core) -> None:
    """Drain if the time limit has passed, or if nothing is served any more."""
    waiting = core.awaiting_successor
    if waiting is not None and (core.now_ms >= waiting.until_ms or not _is_serving(core)):
        _end(core)


def _end(core: Core) -> bool:
    waiting = core.awaiting_successor
    if waiting is not None:
        _begin(core, waiting.drain)
    return waiting is not None


def _begin(core: Core, event: on.Drain) -> None:
    core.awaiting_successor = None
    if event.serves_until_ms is not None and core.draining is None:
        core.actions.append(do.StopDispatch())
    draining.drain(core, event)


def _is_serving(core: Core) -> bool:
    owns = any(not partition_state.is_manual for partition_state in core.partition_states.values())
    is_member = isinstance(core.membership, InGroup)
    return owns and is_member and core.application is not None and not core.config.suspended
