"""
Prometheus metrics of a sidecar. Imported at the first scrape, because a sidecar that is not scraped does not need it.

Counters and owned partitions are read at the scrape: a partition that was revoked has no series.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

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
from rota_sidecar.observability.counters import Counters, Histogram, QueryCounters
from rota_sidecar.observability.partition_status import PartitionStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = tuple(state.__name__ for state in get_args(states.State))
# By granularity: the labels of series of partitions.
LABELS: Mapping[str, Sequence[str]] = {
    "partition": ("group", "topic", "partition"),
    "topic": ("group", "topic"),
    "group": ("group",),
}


class GroupOfMetrics(NamedTuple):
    """The group whose metrics are exported, and at which level: partition, topic or group."""

    group_id: str
    granularity: str = "partition"

    @property
    def labels(self) -> Sequence[str]:
        """Names of the labels of series of partitions."""
        return LABELS[self.granularity]

    def values(self, partition: Partition) -> tuple[str, ...]:
        """Return the values of the labels for a partition."""
        return (self.group_id, partition.topic, str(partition.number))[: len(self.labels)]


class Metrics(Collector):
    """Collector of one sidecar's metrics. `wall_s` returns Unix time in seconds."""

    def __init__(
        self,
        of_group: GroupOfMetrics,
        counters: Counters,
        statuses: Callable[[], Iterable[tuple[Partition, PartitionStatus]]],
        wall_s: Callable[[], float],
    ) -> None:
        self._of_group, self._group = of_group, of_group.group_id
        self._counters = counters
        self._statuses = statuses
        self._wall_s = wall_s
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def samples(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Return name, labels and value of all metrics."""
        for metric in self.collect():
            for sample in metric.samples:
                yield sample.name, sample.labels, sample.value

    @override
    def collect(self) -> Iterator[Metric]:
        statuses = dict(self._statuses())
        yield from self._of_partitions(statuses)
        yield self._number("assigned_partitions", "Partitions assigned to the member.", len(statuses))
        in_flight = sum(each.in_flight for each in statuses.values())
        yield self._number(
            "inflight_records", "Records dispatched to the application without a verdict.", in_flight
        )
        state = GaugeMetricFamily(
            "rota_member_state", "1 for the state that the member is in.", labels=["group", "state"]
        )
        for name in STATES:
            state.add_metric([self._group, name], float(name == self._counters.state))
        yield state
        yield from self._of_work()
        if self._counters.query.rows_per_second is not None:
            yield from self._of_query(self._counters.query, self._counters.query.rows_per_second)

    def _of_partitions(self, statuses: Mapping[Partition, PartitionStatus]) -> Iterator[Metric]:
        records = GaugeMetricFamily(
            "rota_lag_records",
            "Uncommitted records: end offset - max(committed offset, log start offset), never below 0.",
            labels=self._of_group.labels,
        )
        seconds = GaugeMetricFamily(
            "rota_lag_seconds",
            "Age of the first uncommitted record, to within its batch; 0 when there is none.",
            labels=self._of_group.labels,
        )
        progress = GaugeMetricFamily(
            "rota_last_progress_timestamp_seconds",
            "Time of the last verdict, advance of the commit, or moment without records to process; at first of the assignment.",
            labels=self._of_group.labels,
        )
        now_s = self._wall_s()
        parts: dict[tuple[str, ...], list[PartitionStatus]] = {}
        for partition, each in statuses.items():
            parts.setdefault(self._of_group.values(partition), []).append(each)
        for labels, members in parts.items():
            for family, combine, found in (
                (records, sum, [each.lag for each in members]),
                (seconds, max, [each.lag_s(now_s) for each in members]),
                (progress, min, [each.last_progress_s for each in members]),
            ):
                known = [value for value in found if value is not None]
                # A sum, maximum or minimum with an unknown part is unknown.
                if len(known) == len(found):
                    family.add_metric(labels, combine(known))
        yield from (records, seconds, progress)

    def _of_work(self) -> Iterator[Metric]:
        counters = self._counters
        judged = CounterMetricFamily(
            "rota_records",
            "Records by verdict: ack, retry, dead_letter, skip; refused: a verdict that was rejected.",
            labels=["group", "topic", "verdict"],
        )
        for (topic, verdict), count in counters.records.items():
            judged.add_metric([self._group, topic, verdict], count)
        yield judged
        yield self._counted(
            "heartbeats",
            "Heartbeats by outcome: ok, Kafka's name of an error, unreachable, refused.",
            "outcome",
            counters.heartbeats,
        )
        yield self._counted(
            "commits",
            "Commits by outcome: ok, or Kafka's name of the first error.",
            "outcome",
            counters.commits,
        )
        yield self._counted(
            "rebalances",
            "Rebalance events by kind: joined (a generation), assigned, revoked, lost.",
            "kind",
            counters.rebalances,
        )
        yield self._histogram(
            "processing_seconds",
            "Time from the dispatch of records to the verdict on the last of them.",
            counters.processing_seconds,
        )
        yield self._histogram(
            "revoke_seconds",
            "Time from the revocation of partitions until the application has released them.",
            counters.revoke_seconds,
        )

    def _of_query(self, query: QueryCounters, rows_per_second: float) -> Iterator[Metric]:
        rows = CounterMetricFamily("rota_query_rows", "Rows that the Spark query has read.", labels=["group"])
        rows.add_metric([self._group], query.rows)
        yield rows
        yield self._number(
            "query_rows_per_second",
            "Rows that the last micro-batch of the Spark query has processed in a second.",
            rows_per_second,
        )
        yield self._histogram(
            "query_batch_seconds", "Duration of the micro-batches of the Spark query.", query.batch_seconds
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
        buckets, total_s = histogram.buckets()
        # The last one counts all.
        shown = buckets[-1:] if self._of_group.granularity == "group" else buckets
        family.add_metric([self._group], shown, total_s)
        return family
