"""
KEDA's Kafka scaler and the activation of a ScaledObject, written from KEDA's documentation (2.21).

The metric is the sum of the partitions' lag, bounded so that it asks for no more replicas than there are partitions; the HPA divides it by
lagThreshold. From 0 to 1 and back KEDA scales by itself. Sources: keda.sh/docs/2.21/scalers/apache-kafka, keda.sh/docs/2.21/reference/
scaledobject-spec. `test_keda.py` has the worked examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.autoscaling.hpa import HorizontalPodAutoscaler, HpaSpec

POLLING_S = 30
COOLDOWN_S = 300


@dataclass(frozen=True, slots=True)
class KafkaTrigger:
    """Metadata of the trigger `kafka`, with its defaults."""

    lag_threshold: int = 10
    activation_lag_threshold: int = 0
    allow_idle_consumers: bool = False
    limit_to_partitions_with_lag: bool = False
    ensure_even_distribution: bool = False

    def metric(self, lags: Sequence[int]) -> int:
        """Return the metric that the HPA reads, of the partitions' lag."""
        total, bound = sum(lags), len(lags)
        if self.ensure_even_distribution:
            divisors = (each for each in range(1, bound + 1) if bound % each == 0)
            total = self.lag_threshold * next(
                (each for each in divisors if each * self.lag_threshold >= total), bound
            )
        if self.limit_to_partitions_with_lag:
            bound = sum(each > 0 for each in lags)
        is_bounded = not self.allow_idle_consumers or self.limit_to_partitions_with_lag
        if is_bounded and total // self.lag_threshold > bound:
            return bound * self.lag_threshold
        return total

    def is_active(self, lags: Sequence[int]) -> bool:
        """Return whether the group needs a replica at all."""
        return sum(lags) > self.activation_lag_threshold


class ScaledObject:
    """A ScaledObject with one trigger, and its HPA."""

    def __init__(self, trigger: KafkaTrigger, min_replicas: int, max_replicas: int) -> None:
        self._trigger = trigger
        self._min = min_replicas
        target = float(trigger.lag_threshold)
        self._hpa = HorizontalPodAutoscaler(HpaSpec(max(1, min_replicas), max_replicas, target))
        self._active_s = 0.0

    def poll(self, now_s: float, replicas: int, lags: Sequence[int] | None) -> int:
        """Activate, or deactivate after the cooldown; due each POLLING_S. `lags` None: they cannot be read."""
        if lags is None:
            return replicas
        if self._trigger.is_active(lags):
            self._active_s = now_s
            return replicas or max(1, self._min)
        is_cool = now_s - self._active_s >= COOLDOWN_S
        return 0 if is_cool and not self._min else replicas

    def sync(self, now_s: float, replicas: int, lags: Sequence[int] | None) -> int:
        """Return the number that the HPA desires; due each SYNC_S."""
        return self._hpa.sync(now_s, replicas, None if lags is None else self._trigger.metric(lags))
