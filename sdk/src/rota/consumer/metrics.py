"""Metrics of a consumer: those of its sidecar, by name and tags, as of Java's `Consumer.metrics`."""

from collections.abc import Iterable
from typing import NamedTuple

from rota_proto.sidecar.v1 import sidecar_pb2 as pb


class MetricName(NamedTuple):
    """
    Name of a metric with its tags, pairs of name and value in the order of their names.

    >>> MetricName.of("rota_lag_records", topic="orders", partition="0")
    MetricName(name='rota_lag_records', tags=(('partition', '0'), ('topic', 'orders')))
    """

    name: str
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str, **tags: str) -> "MetricName":
        """Create the name of a metric with these tags."""
        return cls(name, tuple(sorted(tags.items())))


Metrics = dict[MetricName, float]


def metrics_of(samples: Iterable[pb.MetricsResponse.Sample]) -> Metrics:
    """Return the values of metrics by name."""
    return {MetricName(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
