"""The built-in strategies, by the names that Kafka's tools show."""

from rota_sidecar.core.assignors.load_aware import LoadAwareSticky
from rota_sidecar.core.assignors.model import Assignor
from rota_sidecar.core.assignors.range import Range
from rota_sidecar.core.assignors.round_robin import RoundRobin
from rota_sidecar.core.assignors.sticky import CooperativeSticky, Sticky

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky", "load-aware-sticky")


def built_in(max_moved_percent: int) -> dict[str, Assignor]:
    """Return the built-in strategies. At most `max_moved_percent` of all partitions move in a rebalance of `load-aware-sticky`."""
    found = (Range(), RoundRobin(), Sticky(), CooperativeSticky(), LoadAwareSticky(max_moved_percent))
    return dict(zip(NAMES, found, strict=True))
