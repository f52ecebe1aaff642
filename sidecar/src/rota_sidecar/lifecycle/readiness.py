"""
Why a sidecar is not ready, in one sentence: it has partitions and gets on, or it has none and knows why.

Asked by the page's `/readyz`, through `serving`.
"""

from rota_sidecar.core.member.states import Discover, Down, Joining, Stopped, Syncing
from rota_sidecar.delivery.driver import Delivering
from rota_sidecar.lifecycle.drain import DrainController
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.observability.log_observer import format_partitions

# Without a generation: nothing is given to it, or it is not known what.
OUTSIDE = Down | Discover | Joining | Syncing | Stopped


def readiness_problem(delivering: Delivering, members: MemberLifecycle, draining: DrainController) -> str:
    """Empty when it is ready."""
    if draining.status:
        return draining.status
    if members.awaits_instance_name:
        # A surplus pod of a rollout: it waits for the name of one that goes.
        return ""
    delivery = delivering.delivery
    return delivery.readiness or unassigned_reason(delivering, members) or stalled_reason(delivering)


def unassigned_reason(delivering: Delivering, members: MemberLifecycle) -> str:
    """Why nobody gives it anything."""
    if delivering.picked:
        return ""
    if not delivering.presence.is_wanted:
        return "nobody subscribes: give --topics, or have the application subscribe"
    state = members.current.member.state
    # While it is in a round it keeps what it has, and works on that.
    if isinstance(state, OUTSIDE) and not delivering.delivery.held:
        return f"the member is in no generation yet: it is {type(state).__name__}"
    return ""


def stalled_reason(delivering: Delivering) -> str:
    """Why what it has gets no further."""
    delivery = delivering.delivery
    if not delivering.is_attached:
        return "no application is attached: start it, or see why it ended"
    if delivering.config.suspended:
        return ""
    for partition, view in sorted(delivery.partitions.items()):
        if view.stopped:
            return f"{format_partitions([partition])}: {view.stopped}"
        if view.position is None:
            why = view.problem or "it is not known yet where it begins"
            return f"{format_partitions([partition])}: {why}"
    return ""
