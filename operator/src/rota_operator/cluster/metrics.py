"""
Prometheus metrics of the operator, in a registry of its own; served at /metrics by `process`.

Series of a ConsumerGroup follow its status, and are removed with the resource; a value that is unknown has no series.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)

from rota_operator.cluster.queues import Key
from rota_operator.spec.model import Alerts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAMES = ("namespace", "name")
RECONCILE_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
# By series: the path of the value in a status.
STATUS_GAUGES = {
    "rota_group_partitions": (("partitions",), "Partitions that the group consumes."),
    "rota_group_unowned_partitions": (("unownedPartitions",), "Partitions that are assigned to no member."),
    "rota_group_lag_records": (("lag", "total"), "Uncommitted records in all partitions."),
    "rota_group_lag_seconds": (("lag", "maxSeconds"), "Age of the oldest uncommitted record."),
}
REPLICAS = {
    "desired": ("desiredReplicas",),
    "actual": ("replicas",),
    "recommended": ("scaling", "neededReplicas"),
}


class Rebalances(NamedTuple):
    """Rebalances of one group since this process observes it. Invariant: `total` never falls."""

    generation: int
    total: int = 0

    def observed(self, generation: int) -> "Rebalances":
        """
        Return the count after a generation was observed; each rebalance increases the generation by one.

        A lower generation is that of a group that was deleted and created again, or, on Kafka, of members that have not reported the
        latest one: counting continues from there.
        """
        return Rebalances(generation, self.total + max(0, generation - self.generation))


class Metrics:
    """The operator's metrics. Invariant: a ConsumerGroup has series only between `update` and `remove`."""

    def __init__(self) -> None:
        # A series with the time of creation beside each counter and histogram, which would double those of groups.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there
        registry = self._registry = CollectorRegistry()
        self._reconciles = Counter(
            "rota_operator_reconciles",
            "Reconciles by outcome: success or error.",
            ["outcome"],
            registry=registry,
        )
        # `increase` does not see the first error of a series that begins with it.
        for outcome in ("success", "error"):
            self._reconciles.labels(outcome)
        self._seconds = Histogram(
            "rota_operator_reconcile_seconds",
            "Duration of reconciles.",
            buckets=RECONCILE_BUCKETS_S,
            registry=registry,
        )
        self._info = Gauge(
            "rota_group_info",
            "Always 1: the group id and the coordination of a ConsumerGroup, to join the series of sidecars with.",
            [*NAMES, "group", "coordination"],
            registry=registry,
        )
        self._thresholds = Gauge(
            "rota_group_alert_threshold_seconds",
            "Threshold of an alert, from monitoring.alerts of the ConsumerGroup; no series while it is suspended.",
            [*NAMES, "alert"],
            registry=registry,
        )
        self._rebalances = Counter(
            "rota_group_rebalances",
            "Rebalances since this process leads, by the group's generation; on every engine.",
            NAMES,
            registry=registry,
        )
        self._decisions = Counter(
            "rota_scale_decisions",
            "Decisions of the autoscaler since this process leads, by direction: up, down or none; one that repeats the one before is "
            "not counted.",
            [*NAMES, "direction", "reason"],
            registry=registry,
        )
        self._conditions = Gauge(
            "rota_group_condition",
            "1 if the condition is True, 0 if it is False; no series if it is Unknown.",
            [*NAMES, "type"],
            registry=registry,
        )
        self._replicas = Gauge(
            "rota_group_replicas",
            "Replicas of the workload by kind: desired, actual, or recommended: those that the load asks for, whatever the bounds are.",
            [*NAMES, "kind"],
            registry=registry,
        )
        self._gauges = {
            name: Gauge(name, meaning, NAMES, registry=registry)
            for name, (_, meaning) in STATUS_GAUGES.items()
        }
        # By ConsumerGroup: its series, by gauge and label values.
        self._children: dict[Key, dict[tuple[Gauge, tuple[str, ...]], Gauge]] = {}
        # Of groups whose generation was known once.
        self._counted: dict[Key, Rebalances] = {}
        # Direction and reason of the decisions that were counted.
        self._decided: dict[Key, set[tuple[str, str]]] = {}

    def reconciled(self, outcome: str, seconds: float) -> None:
        """Count a reconcile."""
        self._reconciles.labels(outcome).inc()
        self._seconds.observe(seconds)

    def update(self, key: Key, status: Mapping[str, Any], alerts: Alerts | None) -> None:
        """Replace the series of a ConsumerGroup by those of a status and of its thresholds; None: it has none now."""
        wanted, children = dict(self._series(key, status)), self._children.get(key, {})
        for alert, seconds in ({} if alerts is None else thresholds_of(alerts)).items():
            wanted[self._thresholds, (*key, alert)] = float(seconds)
        for gauge, labels in children.keys() - wanted.keys():
            gauge.remove(*labels)
        self._children[key] = {
            series: children.get(series) or series[0].labels(*series[1]) for series in wanted
        }
        for series, child in self._children[key].items():
            child.set(wanted[series])
        self._count_rebalances(key, status.get("generation"))

    def scale_decided(self, key: Key, before: int, after: int, reason: str) -> None:
        """Count a decision of the autoscaler."""
        direction = "none" if after == before else "up" if after > before else "down"
        self._decided.setdefault(key, set()).add((direction, reason))
        self._decisions.labels(*key, direction, reason).inc()

    def remove(self, key: Key) -> None:
        """Remove the series of a ConsumerGroup that is gone."""
        for gauge, labels in self._children.pop(key, {}):
            gauge.remove(*labels)
        if self._counted.pop(key, None) is not None:
            self._rebalances.remove(*key)
        for labels in self._decided.pop(key, ()):
            self._decisions.remove(*key, *labels)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics by family."""
        yield from self._registry.collect()

    def _count_rebalances(self, key: Key, generation: int | None) -> None:
        if generation is None:
            return
        was = self._counted.get(key, Rebalances(generation))
        now = self._counted[key] = was.observed(generation)
        self._rebalances.labels(*key).inc(now.total - was.total)

    def _series(
        self, key: Key, status: Mapping[str, Any]
    ) -> list[tuple[tuple[Gauge, tuple[str, ...]], float]]:
        found: list[tuple[tuple[Gauge, tuple[str, ...]], float]] = []
        if status.get("groupId"):
            names = (*key, str(status["groupId"]), str(status.get("coordination", "")))
            found.append(((self._info, names), 1.0))
        for name, (path, _) in STATUS_GAUGES.items():
            if (value := value_at(status, path)) is not None:
                found.append(((self._gauges[name], tuple(key)), float(value)))
        for kind, path in REPLICAS.items():
            if (value := value_at(status, path)) is not None:
                found.append(((self._replicas, (*key, kind)), float(value)))
        for each in status.get("conditions") or ():
            if each["status"] != "Unknown":
                labels = (*key, str(each["type"]))
                found.append(((self._conditions, labels), float(each["status"] == "True")))
        return found


def thresholds_of(alerts: Alerts) -> Mapping[str, int]:
    """Return the thresholds in seconds, by the name of the alert that compares with it."""
    return {"RotaLagSecondsHigh": alerts.lag_seconds, "RotaGroupStuck": alerts.stuck_seconds}


def value_at(status: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    """Return the number at a path; None if it is absent."""
    found: Any = status
    for name in path:
        found = (found or {}).get(name)
    return found if isinstance(found, (int, float)) else None
