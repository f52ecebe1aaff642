"""
What Prometheus is told of a sidecar. Loaded at the first scrape: a sidecar that nobody scrapes has no need of it.

The counts are looked at then, and the partitions that it has at that moment: a partition that is gone has no series.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from typing_extensions import override

from rota_sidecar.core.member import states
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.observability.counters import Counters, Histogram
from rota_sidecar.observability.partition_status import PartitionStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = tuple(state.__name__ for state in get_args(states.State))
OF_PARTITION = ("group", "topic", "partition")


class Metrics(Collector):
    """The numbers of one sidecar. `wall_s` is the time of day."""

    def __init__(
        self,
        group: str,
        counters: Counters,
        statuses: Callable[[], Iterable[tuple[Partition, PartitionStatus]]],
        wall_s: Callable[[], float],
    ) -> None:
        self._group = group
        self._counters = counters
        self._statuses = statuses
        self._wall_s = wall_s
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)

    @override
    def collect(self) -> Iterator[Metric]:
        statuses = dict(self._statuses())
        yield from self._of_partitions(statuses)
        yield self._number("assigned_partitions", "Partitions that the member has.", len(statuses))
        in_flight = sum(each.in_flight for each in statuses.values())
        yield self._number("inflight_records", "Records in the application's hands.", in_flight)
        state = GaugeMetricFamily(
            "rota_member_state", "1 for the state that the member is in.", labels=["group", "state"]
        )
        for name in STATES:
            state.add_metric([self._group, name], float(name == self._counters.state))
        yield state
        yield from self._of_work()

    def _of_partitions(self, statuses: Mapping[Partition, PartitionStatus]) -> Iterator[Metric]:
        records = GaugeMetricFamily(
            "rota_lag_records",
            "Uncommitted records: from the committed offset to the end.",
            labels=OF_PARTITION,
        )
        seconds = GaugeMetricFamily(
            "rota_lag_seconds",
            "Age of the first uncommitted record; 0 when there is none.",
            labels=OF_PARTITION,
        )
        progress = GaugeMetricFamily(
            "rota_last_progress_timestamp_seconds",
            "When the application gave its last verdict, or was given the partition.",
            labels=OF_PARTITION,
        )
        now_s = self._wall_s()
        for partition, each in statuses.items():
            labels = [self._group, partition.topic, str(partition.number)]
            for family, value in (
                (records, each.lag),
                (seconds, each.lag_s(now_s)),
                (progress, self._counters.progress_s.get(partition)),
            ):
                if value is not None:
                    family.add_metric(labels, value)
        yield from (records, seconds, progress)

    def _of_work(self) -> Iterator[Metric]:
        counters = self._counters
        judged = CounterMetricFamily(
            "rota_records", "Records with a verdict.", labels=["group", "topic", "verdict"]
        )
        for (topic, verdict), count in counters.records.items():
            judged.add_metric([self._group, topic, verdict], count)
        yield judged
        yield self._counted("heartbeats", "Heartbeats, by how they went.", "outcome", counters.heartbeats)
        yield self._counted("commits", "Commits, by how they went.", "outcome", counters.commits)
        yield self._counted("rebalances", "What the group did to the member.", "kind", counters.rebalances)
        yield self._histogram(
            "processing_seconds",
            "From handing records over to the verdict on the last of them.",
            counters.processing_seconds,
        )
        yield self._histogram(
            "revoke_seconds",
            "From being told to let partitions go until they are gone.",
            counters.revoke_seconds,
        )

    def _number(self, name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"rota_{name}", meaning, labels=["group"])
        family.add_metric([self._group], value)
        return family

    def _counted(self, name: str, meaning: str, label: str, counter: Counter[str]) -> Metric:
        family = CounterMetricFamily(f"rota_{name}", meaning, labels=["group", label])
        for kind, count in counter.items():
            family.add_metric([self._group, kind], count)
        return family

    def _histogram(self, name: str, meaning: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"rota_{name}", meaning, labels=["group"])
        family.add_metric([self._group], *histogram.buckets())
        return family
