"""
Makes samples of a group's views: arrival by its end offsets, backlog, and what its replicas process while they are busy.

Called by the shell at each polling interval with the measurement before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median_low

from rota_operator.autoscaling.samples import GroupActivity, PartitionLoad, Sample
from rota_operator.autoscaling.skew import NO_NEIGHBOURS, neighbours_of
from rota_operator.overview.description import STABLE, UNKNOWN
from rota_operator.overview.samples import name_of
from rota_operator.overview.view import EventKind, GroupView, PartitionView
from rota_proto.fleet.v1.fleet_pb2 import SidecarReport

# Partitions that are looked at one by one, those with the most load.
HOTTEST_MAX = 16
# Rebalances of which the pause is remembered.
PAUSES_MAX = 9
EMPTY_STATES = ("Empty", "Dead")

Reports = Mapping[str, SidecarReport]


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of a sidecar since it started."""

    records_done: int
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """A sample, with the counters from which the next one is computed."""

    sample: Sample
    # By TOPIC-NUMBER.
    ends: Mapping[str, int]
    counters: Mapping[str, Counters]


def measure(
    before: Measurement | None, view: GroupView, reports: Reports, replicas: int, at_ms: int
) -> Measurement:
    """Measure a group; `replicas` is the desired number."""
    ends = {name_of(each): each.end for each in view.partitions if each.end is not None}
    counters = {
        name: Counters(report.member.records_done, report.member.busy_seconds)
        for name, report in reports.items()
    }
    activity = _activity(view, replicas)
    rates = {name_of(each): _arrival_rate(each, before, at_ms) for each in view.partitions}
    known = [rate for rate in rates.values() if rate is not None]
    lags = [each.lag_records for each in view.partitions if each.lag_records is not None]
    done, busy_seconds = _worked(before, counters)
    rebalances = [each for each in view.history if each.kind is EventKind.REBALANCE]
    pauses = [each.pause_ms for each in rebalances[:PAUSES_MAX] if each.pause_ms is not None]
    count = len(view.partitions)
    joined = [each for each in view.members if each.member_id is not None]
    silent = sum(each.state == UNKNOWN for each in joined)
    sample = Sample(
        at_ms=at_ms,
        activity=activity,
        replicas=replicas,
        members=sum(not each.draining for each in joined),
        generation=view.generation,
        rebalanced_ms=rebalances[0].at_ms if rebalances else None,
        pause_ms=median_low(pauses) if pauses else None,
        partitions=None if activity is GroupActivity.UNKNOWN else count + view.partitions_left_out,
        arrival_rate=sum(known) if known else None,
        backlog=sum(lags) if lags else None,
        lag_seconds=max(
            (each.lag_seconds for each in view.partitions if each.lag_seconds is not None), default=None
        ),
        hottest=_hottest(view, rates),
        is_suspended=any(each.suspended for each in joined),
        silent=silent,
        is_partial=len(known) < count or len(lags) < count or view.partitions_left_out > 0 or silent > 0,
        done=done,
        busy_seconds=busy_seconds,
    )
    return Measurement(sample, ends, counters)


def _activity(view: GroupView, replicas: int) -> GroupActivity:
    if view.state == UNKNOWN:
        return GroupActivity.UNKNOWN
    if view.state == STABLE:
        return GroupActivity.STABLE
    return GroupActivity.EMPTY if view.state in EMPTY_STATES and not replicas else GroupActivity.REBALANCING


def _arrival_rate(partition: PartitionView, before: Measurement | None, at_ms: int) -> float | None:
    """Records per second since the measurement before; as the sidecar reports it if there was none."""
    was = None if before is None else before.ends.get(name_of(partition))
    if before is None or was is None or partition.end is None or at_ms <= before.sample.at_ms:
        return partition.arrival_rate
    # A topic that was created anew begins at 0.
    return None if partition.end < was else (partition.end - was) * 1000 / (at_ms - before.sample.at_ms)


def _worked(before: Measurement | None, counters: Mapping[str, Counters]) -> tuple[int, float]:
    """Records that were processed since the measurement before, and the busy time; a sidecar that restarted counts anew."""
    done, busy_seconds = 0, 0.0
    for name, now in counters.items():
        was = None if before is None else before.counters.get(name)
        if was is not None and now.records_done >= was.records_done and now.busy_seconds >= was.busy_seconds:
            done += now.records_done - was.records_done
            busy_seconds += now.busy_seconds - was.busy_seconds
    return done, busy_seconds


def _hottest(view: GroupView, rates: Mapping[str, float | None]) -> tuple[PartitionLoad, ...]:
    loads = [
        PartitionLoad(name_of(each), rate, each.lag_records)
        for each in view.partitions
        if (rate := rates[name_of(each)]) is not None and each.lag_records is not None
    ]
    loads.sort(key=lambda each: (-each.arrival_rate, -each.backlog, each.name))
    loads = loads[:HOTTEST_MAX]
    found = neighbours_of([each.name for each in loads], view, rates)
    neighbours = [found.get(each.name, NO_NEIGHBOURS) for each in loads]
    return tuple(
        replace(load, neighbour_rate=each.rate, moving_rate=each.moving_rate)
        for load, each in zip(loads, neighbours, strict=True)
    )
