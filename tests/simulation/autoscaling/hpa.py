"""
HorizontalPodAutoscaler of autoscaling/v2 with one external metric, written from Kubernetes' documentation.

`HorizontalPodAutoscaler.sync(now_s, replicas, metric)` returns the desired number: the metric divided by its target average value, unless the
ratio is within the tolerance, then the highest recommendation of the stabilization window, then the scaling policies, then the bounds.
Source: kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale. `test_hpa.py` has its worked examples.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

# --horizontal-pod-autoscaler-sync-period and --horizontal-pod-autoscaler-tolerance.
SYNC_S = 15
TOLERANCE = 0.1


class PolicyType(Enum):
    """Unit of a scaling policy's value."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(Enum):
    """Policy that applies of several."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class Policy:
    """Change that is allowed within a time."""

    type: PolicyType
    value: int
    period_s: int


@dataclass(frozen=True, slots=True)
class Rules:
    """Behavior in one direction."""

    policies: Sequence[Policy]
    stabilization_s: int = 0
    select: SelectPolicy = SelectPolicy.MAX
    tolerance: float = TOLERANCE


SCALE_UP = Rules((Policy(PolicyType.PERCENT, 100, 15), Policy(PolicyType.PODS, 4, 15)))
SCALE_DOWN = Rules((Policy(PolicyType.PERCENT, 100, 15),), stabilization_s=300)


@dataclass(frozen=True, slots=True)
class HpaSpec:
    """Spec of a HorizontalPodAutoscaler with one external metric of type AverageValue."""

    min_replicas: int
    max_replicas: int
    # Target average value of the metric.
    target: float
    up: Rules = SCALE_UP
    down: Rules = SCALE_DOWN


@dataclass(frozen=True, slots=True)
class _Timed:
    at_s: float
    replicas: int


def replicas_by_metric(replicas: int, metric: float, spec: HpaSpec) -> int:
    """Return ceil(replicas x current average / target), or the same number if the ratio is within the tolerance."""
    ratio = metric / (spec.target * replicas)
    if 1 - spec.down.tolerance <= ratio <= 1 + spec.up.tolerance:
        return replicas
    return math.ceil(metric / spec.target)


class HorizontalPodAutoscaler:
    """Invariant: recommendations and changes are kept as long as a window or a policy's period looks back, oldest first."""

    def __init__(self, spec: HpaSpec) -> None:
        self._spec = spec
        self._recommendations: deque[_Timed] = deque()
        # Changes of the number: positive ones added pods.
        self._changes: deque[_Timed] = deque()
        self._kept_s = max(
            spec.up.stabilization_s,
            spec.down.stabilization_s,
            *(each.period_s for each in (*spec.up.policies, *spec.down.policies)),
        )

    def sync(self, now_s: float, replicas: int, metric: float | None) -> int:
        """Return the desired number of replicas; `metric` None: it cannot be read, and the number stays."""
        if metric is None or not replicas:
            return replicas
        while self._recommendations and self._recommendations[0].at_s < now_s - self._kept_s:
            self._recommendations.popleft()
        while self._changes and self._changes[0].at_s < now_s - self._kept_s:
            self._changes.popleft()
        if not self._recommendations:
            self._recommendations.append(_Timed(now_s, replicas))
        found = self._stabilized(now_s, replicas, replicas_by_metric(replicas, metric, self._spec))
        found = self._limited(now_s, replicas, found)
        if found != replicas:
            self._changes.append(_Timed(now_s, found - replicas))
        return found

    def _stabilized(self, now_s: float, replicas: int, desired: int) -> int:
        """Return the desired number, or the one within the windows that is nearest to the present number."""
        self._recommendations.append(_Timed(now_s, desired))
        up = min(self._within(now_s, self._spec.up.stabilization_s))
        down = max(self._within(now_s, self._spec.down.stabilization_s))
        return max(replicas, up) if up > replicas else min(replicas, down)

    def _within(self, now_s: float, window_s: float) -> list[int]:
        latest = self._recommendations[-1].replicas
        return [latest, *(each.replicas for each in self._recommendations if each.at_s > now_s - window_s)]

    def _limited(self, now_s: float, replicas: int, desired: int) -> int:
        """Apply policies and bounds."""
        spec = self._spec
        if desired > replicas:
            desired = min(desired, max(replicas, self._limit(now_s, replicas, spec.up, 1)))
        elif desired < replicas:
            desired = max(desired, min(replicas, self._limit(now_s, replicas, spec.down, -1)))
        return max(spec.min_replicas, min(spec.max_replicas, desired))

    def _limit(self, now_s: float, replicas: int, rules: Rules, sign: int) -> int:
        """Return the number that the policies of one direction allow at most (sign 1), or at least (sign -1)."""
        if rules.select is SelectPolicy.DISABLED:
            return replicas
        limits = []
        for policy in rules.policies:
            changed = sum(each.replicas for each in self._changes if each.at_s > now_s - policy.period_s)
            start = replicas - changed
            if policy.type is PolicyType.PODS:
                limits.append(start + sign * policy.value)
            elif sign > 0:
                limits.append(math.ceil(start * (1 + policy.value / 100)))
            else:
                limits.append(int(start * (1 - policy.value / 100)))
        takes_highest = (rules.select is SelectPolicy.MAX) is (sign > 0)
        return max(limits) if takes_highest else min(limits)
