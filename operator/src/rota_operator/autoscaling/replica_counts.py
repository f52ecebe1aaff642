"""Numbers of replicas that fit a number of partitions and the bounds of the spec."""

from dataclasses import dataclass

from rota_operator.spec.workload import Autoscaling


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


def fit(replicas: int, partitions: int, spec: Autoscaling) -> int:
    """
    Return the number of replicas that is aligned and within the bounds; never lower for a higher `replicas`.

    If no number within the bounds is aligned, the bounds prevail. 0 stays 0 if it is within the bounds.
    """
    bounds = bounds_of(spec, partitions)
    wanted = bounds.clamp(replicas)
    if wanted == 0 or spec.partition_alignment == "off":
        return wanted
    if spec.partition_alignment == "balanced":
        # The smallest number with the same maximum of partitions per replica.
        least = _divided_up(partitions, _divided_up(partitions, wanted))
        if least >= bounds.low:
            return least
        above = range(wanted, bounds.high + 1)
        return next((n for n in above if is_aligned(n, partitions, spec)), wanted)
    above = range(wanted, bounds.high + 1)
    below = range(wanted, max(bounds.low, 1) - 1, -1)
    return next((n for n in (*above, *below) if is_aligned(n, partitions, spec)), wanted)


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
