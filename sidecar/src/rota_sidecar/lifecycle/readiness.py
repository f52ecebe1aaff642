"""
Why a sidecar is not ready, in one sentence: it has partitions and gets on, or it has none and knows why.

Asked by the page's `/readyz`, through `serving`.
"""

from rota_sidecar.core.member.states import Discover, Down, Joining, Stopped, Syncing
from rota_sidecar.delivery.driver import Delivering
from rota_sidecar.lifecycle.drain import Draining
from rota_sidecar.lifecycle.member import Members
from rota_sidecar.observability.log_observer import named

# Without a generation: nothing is given to it, or it is not known what.
OUTSIDE = Down | Discover | Joining | Syncing | Stopped


def missing(delivering: Delivering, members: Members, draining: Draining) -> str:
    """Empty when it is ready."""
    if draining.why:
        return draining.why
    if members.is_nameless:
        # A surplus pod of a rollout: it waits for the name of one that goes.
        return ""
    delivery = delivering.delivery
    return delivery.readiness or unassigned(delivering, members) or stuck(delivering)


def unassigned(delivering: Delivering, members: Members) -> str:
    """Why nobody gives it anything."""
    if delivering.picked:
        return ""
    if not delivering.presence.is_wanted:
        return "nobody subscribes: give --topics, or have the application subscribe"
    state = members.now.member.state
    # While it is in a round it keeps what it has, and works on that.
    if isinstance(state, OUTSIDE) and not delivering.delivery.held:
        return f"the member is in no generation yet: it is {type(state).__name__}"
    return ""


def stuck(delivering: Delivering) -> str:
    """Why what it has gets no further."""
    delivery = delivering.delivery
    if not delivering.is_attached:
        return "no application is attached: start it, or see why it ended"
    if delivering.config.suspended:
        return ""
    for partition, view in sorted(delivery.partitions.items()):
        if view.stopped:
            return f"{named([partition])}: {view.stopped}"
        if view.position is None:
            why = view.problem or "it is not known yet where it begins"
            return f"{named([partition])}: {why}"
    return ""
