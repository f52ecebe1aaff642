"""Numbers of replicas that fit a number of partitions and the bounds of the spec."""

import math
from dataclasses import dataclass

from rota_operator.spec.workload import Autoscaling

# More replicas than this are never needed; a service rate near 0 would ask for more than a number holds.
NEED_MAX = 1_000_000_000
# Rounding errors of a quotient do not ask for a further replica.
ROUNDING = 1e-9
# Share of time in which the replicas of an aligned number may be busy, if it is lower than the load asks for.
ALIGNED_UTILIZATION_MAX = 0.9


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the number of replicas. Invariant: 0 <= low <= high <= number of partitions."""

    low: int
    high: int

    def clamp(self, replicas: int) -> int:
        """Return the nearest number within the bounds."""
        return max(self.low, min(self.high, replicas))


def bounds_of(spec: Autoscaling, partitions: int) -> Bounds:
    """Return the bounds; the number of partitions bounds minReplicaCount too, because a further replica would own none."""
    high = min(spec.max_replica_count, partitions)
    return Bounds(min(spec.min_replica_count, high), high)


def rounded_up(needed: float) -> int:
    """Return the number of replicas for a load that asks for this many at the target utilization; any load asks for one."""
    return min(NEED_MAX, max(1, math.ceil(needed - ROUNDING))) if needed > 0 else 0


def fit(needed: float, partitions: int, spec: Autoscaling) -> int:
    """
    Return the number of replicas for a load, aligned and within the bounds; never lower for a higher `needed`.

    If no number within the bounds is aligned, the bounds prevail. 0 stays 0 if it is within the bounds.
    """
    bounds = bounds_of(spec, partitions)
    wanted = bounds.clamp(rounded_up(needed))
    if wanted == 0 or spec.partition_alignment == "off":
        return wanted
    if spec.partition_alignment == "balanced":
        return _balanced(needed, wanted, partitions, spec)
    above = range(wanted, bounds.high + 1)
    below = range(wanted, max(bounds.low, 1) - 1, -1)
    return next((n for n in (*above, *below) if is_aligned(n, partitions, spec)), wanted)


def _balanced(needed: float, wanted: int, partitions: int, spec: Autoscaling) -> int:
    """Return the smallest number with the same maximum of partitions per replica, or the next such number if it would be overloaded."""
    bounds = bounds_of(spec, partitions)
    least = _divided_up(partitions, _divided_up(partitions, wanted))
    busy = max(spec.target_utilization, ALIGNED_UTILIZATION_MAX)
    if least >= bounds.low and needed * spec.target_utilization <= least * busy + ROUNDING:
        return least
    above = range(wanted, bounds.high + 1)
    return next((n for n in above if is_aligned(n, partitions, spec)), max(least, bounds.low))


def is_aligned(replicas: int, partitions: int, spec: Autoscaling) -> bool:
    """Return whether the number is one of those that partitionAlignment asks for."""
    if replicas < 1:
        return True
    match spec.partition_alignment:
        case "balanced":
            return _divided_up(partitions, _divided_up(partitions, replicas)) == replicas
        case "even":
            return partitions % replicas == 0
        case "off":
            return True


def _divided_up(number: int, by: int) -> int:
    return -(-number // by)
