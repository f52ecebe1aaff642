"""
Why a sidecar is not ready, in one sentence: it has partitions and gets on, or it has none and knows why.

Asked by the page's `/readyz`, through `serving`.
"""

from rota_sidecar.core.member.states import Discover, Down, Joining, Stopped, Syncing
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.lifecycle.drain import DrainController
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.observability.log_observer import format_partitions

# Without a generation: nothing is given to it, or it is not known what.
OUTSIDE = Down | Discover | Joining | Syncing | Stopped


def readiness_problem(driver: DeliveryDriver, members: MemberLifecycle, draining: DrainController) -> str:
    """Empty when it is ready."""
    if draining.status:
        return draining.status
    if members.awaits_instance_name:
        # A surplus pod of a rollout: it waits for the name of one that goes.
        return ""
    delivery = driver.delivery
    return delivery.readiness or unassigned_reason(driver, members) or stalled_reason(driver)


def unassigned_reason(driver: DeliveryDriver, members: MemberLifecycle) -> str:
    """Why nobody gives it anything."""
    if driver.picked:
        return ""
    if not driver.participation.is_wanted:
        return "nobody subscribes: give --topics, or have the application subscribe"
    state = members.current.member.state
    # While it is in a round it keeps what it has, and works on that.
    if isinstance(state, OUTSIDE) and not driver.delivery.held:
        return f"the member is in no generation yet: it is {type(state).__name__}"
    return ""


def stalled_reason(driver: DeliveryDriver) -> str:
    """Why what it has gets no further."""
    delivery = driver.delivery
    if not driver.is_attached:
        return "no application is attached: start it, or see why it ended"
    if driver.config.suspended:
        return ""
    for partition, view in sorted(delivery.partitions.items()):
        if view.stopped:
            return f"{format_partitions([partition])}: {view.stopped}"
        if view.position is None:
            why = view.problem or "it is not known yet where it begins"
            return f"{format_partitions([partition])}: {why}"
    return ""
