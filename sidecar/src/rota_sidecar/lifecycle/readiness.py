"""
Readiness of a sidecar: ready if its partitions make progress, or if the group assigned it none.

`process.sidecar` asks for each request of `/readyz`; the answer is the problem in one sentence.
"""

from rota_sidecar.core.member.states import Discover, Down, Joining, Stopped, Syncing
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.lifecycle.drain import DrainController
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.observability.log_observer import format_partitions

# States without an assignment.
OUTSIDE = Down | Discover | Joining | Syncing | Stopped
UNSUBSCRIBED = "no subscription: set --topics, or let the application subscribe"
UNATTACHED = "no application is attached: start it, or check why it ended"


def readiness_problem(driver: DeliveryDriver, members: MemberLifecycle, draining: DrainController) -> str:
    """Return why the sidecar is not ready; empty: it is ready."""
    if draining.status:
        return draining.status
    if members.fenced_instance:
        return (
            f"another process has taken the instance {members.fenced_instance} (FENCED_INSTANCE_ID): end it"
        )
    if members.awaits_instance_name or members.awaits_order:
        # A surge pod of a rollout: it waits for the place of a pod that ends, and can process records as soon as it has one.
        return _unprepared_reason(driver, members)
    delivery = driver.delivery
    return delivery.readiness or unassigned_reason(driver, members) or stalled_reason(driver)


def _unprepared_reason(driver: DeliveryDriver, members: MemberLifecycle) -> str:
    """Return why the sidecar could not process records as soon as it has partitions; empty: it could."""
    if not driver.is_attached:
        return UNATTACHED
    is_dynamic = members.awaits_order and not members.awaits_instance_name
    return UNSUBSCRIBED if is_dynamic and not driver.participation.is_wanted else ""


def unassigned_reason(driver: DeliveryDriver, members: MemberLifecycle) -> str:
    """Return why no partitions can be assigned; empty: they can."""
    if driver.picked:
        return ""
    if not driver.participation.is_wanted:
        return UNSUBSCRIBED
    if driver.participation.awaits_application:
        return UNATTACHED
    state = members.current.member.state
    # During a rebalance the member keeps its partitions and processes them.
    if isinstance(state, OUTSIDE) and not driver.delivery.held:
        return f"the member has not joined a generation yet: its state is {type(state).__name__}"
    return ""


def stalled_reason(driver: DeliveryDriver) -> str:
    """Return why an owned partition makes no progress; empty: all do."""
    delivery = driver.delivery
    if not driver.is_attached:
        return UNATTACHED
    if driver.config.suspended:
        return ""
    for partition, view in sorted(delivery.partitions.items()):
        if view.stopped:
            return f"{format_partitions([partition])}: {view.stopped}"
        if view.position is None:
            why = view.problem or "its start offset is not known yet"
            return f"{format_partitions([partition])}: {why}"
    return ""
