"""Histories of groups, for tests of the autoscaler."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rota_operator.autoscaling.history import History
from rota_operator.autoscaling.samples import GroupActivity, Sample
from rota_operator.spec.workload import Autoscaling

POLL_MS = 10_000
# Time in which the replicas have started before.
START_MS = 10_000
# 2 replicas, 12 partitions, 10 records/s for each busy replica; most tests begin with it.
CALM = Sample(
    at_ms=0,
    activity=GroupActivity.STABLE,
    replicas=2,
    members=2,
    generation=1,
    pause_ms=1_000,
    partitions=12,
    arrival_rate=10.0,
    backlog=0,
    lag_seconds=0.0,
    done=100,
    busy_seconds=10.0,
)


def spec_of(**fields: Any) -> Autoscaling:  # noqa: ANN401  fields of any type
    """The autoscaler's part of a spec."""
    given = {"enabled": True, "partition_alignment": "off", "min_change_interval_seconds": 60, **fields}
    return Autoscaling.model_validate(given, by_name=True)


def samples_of(count: int, sample: Sample = CALM, start_ms: int = POLL_MS, **changed: Any) -> list[Sample]:  # noqa: ANN401
    """As many samples alike, one at each polling interval."""
    return [replace(sample, at_ms=start_ms + n * POLL_MS, **changed) for n in range(count)]


def history_of(samples: Iterable[Sample], spec: Autoscaling, history: History | None = None) -> History:
    """A history of these samples; in a new one replicas have started within START_MS before."""
    found = history or History(start_ms=START_MS)
    for sample in samples:
        found = found.with_sample(sample, spec)
    return found
