"""Sums a history up as the inputs of one decision: flat and small, so that a decision can be written down and judged again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rota_operator.autoscaling.history import GOOD_SAMPLES, History, Observation
from rota_operator.autoscaling.samples import GroupActivity, PartitionLoad, Sample
from rota_operator.spec.workload import Autoscaling

HOT_SHOWN = 5
# A hot partition of one sample alone is no reason to rebalance.
GAIN_SAMPLES = 2
# Assumed time from a change of the number until the added replicas process records, while none was measured.
START_DEFAULT_MS = 30_000


class Knowledge(StrEnum):
    """State of what is known about the group's load."""

    GOOD = "Good"
    # The latest sample says nothing about the load.
    UNKNOWN = "Unknown"
    REBALANCING = "Rebalancing"
    SUSPENDED = "Suspended"
    # Not enough samples since the last rebalance, or since the observation began.
    FEW_SAMPLES = "FewSamples"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of one decision. Rates are in records per second; None is unknown."""

    at_ms: int
    knowledge: Knowledge
    # What is wrong with the latest sample; empty if nothing is.
    problem: str
    replicas: int
    members: int | None
    partitions: int | None
    good_samples: int
    # Bad samples in a row, up to the latest.
    bad_samples: int
    arrival_rate: float | None
    backlog: int | None
    lag_seconds: float | None
    # Time in which the members process the backlog: a record that arrives now waits for so long.
    wait_seconds: float | None
    # Rate at which the backlog is to be processed beside the arriving records: the average of the last samples, or the latest if it is
    # higher. For a group that will be late it holds what arrives until further replicas have started.
    demand: float | None
    # Demand that each of the last two samples has, and their average: growth answers to no other.
    sustained_demand: float | None
    # The highest demand within minChangeIntervalSeconds that two samples in a row had.
    peak_demand: float | None
    # Of one replica while it is busy.
    service_rate: float | None
    # Unknown partitions are missing in the demand.
    is_partial: bool
    # The oldest uncommitted record is older than lagSecondsTarget.
    is_late: bool
    # The replicas process less than what is to be processed, and the oldest record will be older than lagSecondsTarget before further
    # ones have started.
    will_be_late: bool
    # Partitions that have more load than one replica processes: more replicas do not help them.
    hot_partitions: tuple[str, ...]
    # Records per second that the owner of a hot partition would process in addition if a rebalance moved its other partitions to members
    # with less load, in both of the last two samples.
    rebalance_gain: float
    # Expected duration of a rebalance; None: none was measured.
    pause_ms: int | None
    # Time from the last growth until its replicas had joined; None: none was measured.
    start_ms: int | None
    # Time since the last change of the number, or rebalance with the same number, by the autoscaler.
    since_change_ms: int | None
    # Time since the last change of the number if that added replicas.
    since_growth_ms: int | None
    observed_ms: int
    # More replicas than this number did not help; None: no such change is known.
    ineffective_replicas: int | None
    # The effect of the last rebalance with the same number of replicas is not known yet, or it has moved nothing.
    is_rebalance_pending: bool
    is_rebalance_ineffective: bool
    # The workload replaces its replicas: none is to be removed meanwhile.
    is_rolling_out: bool = False


def summarize(history: History, spec: Autoscaling) -> Inputs | None:
    """Return the inputs of a decision; None without any sample."""
    if not history.observations:
        return None
    latest = history.observations[-1].sample
    good = history.good_observations()
    rate = _service_rate(history.service_rate, latest)
    recent = good[-GOOD_SAMPLES:]
    start_ms = history.start_ms
    demands = [demand_of(each, rate, start_ms, spec) for each in recent]
    mean = _mean(demands) or 0.0
    peaks = _recent(history, latest.at_ms - spec.min_change_interval_seconds * 1000)
    change = history.change
    return Inputs(
        at_ms=latest.at_ms,
        knowledge=_knowledge(history, len(good), spec),
        problem=history.observations[-1].problem,
        replicas=latest.replicas,
        members=latest.members,
        partitions=latest.partitions,
        good_samples=len(good),
        bad_samples=history.bad_count(),
        arrival_rate=_mean(
            [each.sample.arrival_rate for each in recent if each.sample.arrival_rate is not None]
        ),
        backlog=latest.backlog,
        lag_seconds=latest.lag_seconds,
        wait_seconds=_wait_seconds(latest, rate),
        demand=max(mean, demands[-1]) if demands else None,
        sustained_demand=min(mean, *demands[-2:]) if demands else None,
        peak_demand=_peak([demand_of(each, rate, start_ms, spec) for each in peaks], demands),
        service_rate=rate,
        is_partial=any(each.sample.is_partial for each in recent),
        is_late=_is_late(latest, spec),
        will_be_late=_will_be_late(history.observations[-1], rate, start_ms, spec),
        hot_partitions=tuple(each.name for each in _hot(latest, rate, spec)[:HOT_SHOWN]),
        rebalance_gain=_rebalance_gain(recent[-GAIN_SAMPLES:], rate, spec),
        pause_ms=latest.pause_ms,
        start_ms=start_ms,
        since_change_ms=None if history.changed_ms is None else latest.at_ms - history.changed_ms,
        since_growth_ms=None
        if change is None or change.after <= change.before
        else latest.at_ms - change.at_ms,
        observed_ms=latest.at_ms - (latest.at_ms if history.since_ms is None else history.since_ms),
        ineffective_replicas=min(
            (each.before for each in history.ineffective if each.before != each.after), default=None
        ),
        is_rebalance_pending=history.rebalance is not None and bool(history.rebalance.moving_rates),
        is_rebalance_ineffective=any(each.before == each.after for each in history.ineffective),
        is_rolling_out=latest.is_rolling_out,
    )


def _peak(interval: Sequence[float], latest: Sequence[float]) -> float | None:
    """Return the highest demand that two samples in a row had. In one alone, the load may change, or be counted late."""
    pairs = [
        min(before, after)
        for demands in (interval, latest)
        for before, after in zip(demands, demands[1:] or demands, strict=False)
    ]
    return max(pairs, default=None)


def demand_of(
    observation: Observation, service_rate: float | None, start_ms: int | None, spec: Autoscaling
) -> float:
    """
    Return the records per second to process: those that arrive, and the backlog within catchUpSeconds.

    In a group that will be late the backlog is to be processed within lagSecondsTarget, if that is shorter, and with it the records that
    remain until further replicas have started.
    """
    sample = observation.sample
    demand = _processable(observation, service_rate, catch_up_seconds(sample, spec), spec)
    if service_rate is None or not _will_be_late(observation, service_rate, start_ms, spec):
        return demand
    within_s = min(spec.catch_up_seconds, spec.lag_seconds_target)
    remaining = (demand - service_rate * sample.replicas) * _start_seconds(start_ms)
    return max(demand, _processable(observation, service_rate, within_s, spec) + remaining / within_s)


def _processable(
    observation: Observation, service_rate: float | None, within_s: int, spec: Autoscaling
) -> float:
    """
    Return the records per second that arrive, with the backlog within a time.

    A partition is processed by one replica: load beyond what that replica can take is left out, because more replicas do not help it.
    """
    sample = observation.sample
    demand = (sample.arrival_rate or 0.0) + (sample.backlog or 0) / within_s
    if service_rate is None:
        return demand
    capacity = service_rate * spec.target_utilization
    if observation.rate_max + observation.backlog_max / within_s <= capacity:
        return demand
    excess = (max(0.0, each.arrival_rate + each.backlog / within_s - capacity) for each in sample.hottest)
    return max(0.0, demand - sum(excess))


def _will_be_late(
    observation: Observation, service_rate: float | None, start_ms: int | None, spec: Autoscaling
) -> bool:
    """
    Return whether the backlog grows, and records will be late before further replicas have started.

    While no start was measured, they are assumed to start too late: unknown is not zero.
    """
    sample = observation.sample
    demand = _processable(observation, service_rate, catch_up_seconds(sample, spec), spec)
    if service_rate is None or demand <= service_rate * sample.replicas:
        return False
    aging = 1 - service_rate * sample.replicas / demand
    lag_seconds = (sample.lag_seconds or 0.0) + aging * _start_seconds(start_ms)
    return start_ms is None or lag_seconds > spec.lag_seconds_target


def _start_seconds(start_ms: int | None) -> float:
    return (START_DEFAULT_MS if start_ms is None else start_ms) / 1000


def _wait_seconds(sample: Sample, service_rate: float | None) -> float | None:
    if service_rate is None or sample.backlog is None:
        return None
    capacity = service_rate * (sample.replicas if sample.members is None else sample.members)
    return sample.backlog / capacity if capacity > 0 else None


def catch_up_seconds(sample: Sample, spec: Autoscaling) -> int:
    """Return the time within which the backlog is to be processed: a shorter one while the group is late."""
    if _is_late(sample, spec):
        return min(spec.catch_up_seconds, spec.lag_seconds_target)
    return spec.catch_up_seconds


def _is_late(sample: Sample, spec: Autoscaling) -> bool:
    return sample.lag_seconds is not None and sample.lag_seconds > spec.lag_seconds_target


def _knowledge(history: History, good: int, spec: Autoscaling) -> Knowledge:
    latest = history.observations[-1]
    if latest.sample.is_suspended:
        return Knowledge.SUSPENDED
    if latest.sample.activity is GroupActivity.REBALANCING:
        return Knowledge.REBALANCING
    if latest.problem:
        return Knowledge.UNKNOWN
    if not latest.is_settled:
        return Knowledge.REBALANCING
    return (
        Knowledge.GOOD
        if good >= min(GOOD_SAMPLES, spec.fallback.failure_threshold)
        else Knowledge.FEW_SAMPLES
    )


def _recent(history: History, after_ms: int) -> Sequence[Observation]:
    """
    Observations after a time that say something about the load, whether or not the group has rebalanced since, oldest first; and the one
    before them.
    """
    found: list[Observation] = []
    for each in reversed(history.observations):
        if each.is_settled and not each.problem:
            found.append(each)
            if each.sample.at_ms <= after_ms:
                break
    found.reverse()
    return found


def _service_rate(known: float | None, latest: Sample) -> float | None:
    """The measured rate, bounded by a rate limit."""
    limit = latest.service_rate_max
    if known is None or limit is None or not math.isfinite(limit) or limit <= 0:
        return known
    return min(known, limit)


def _hot(sample: Sample, service_rate: float | None, spec: Autoscaling) -> Sequence[PartitionLoad]:
    if service_rate is None or sample.partitions == 1:
        return ()
    capacity, within_s = service_rate * spec.target_utilization, catch_up_seconds(sample, spec)
    hot = [each for each in sample.hottest if each.arrival_rate + each.backlog / within_s > capacity]
    # Not a skew if most of the partitions that are looked at have that much: then the group as a whole is overloaded.
    return hot if len(hot) * 2 < len(sample.hottest) else ()


def _rebalance_gain(
    observations: Sequence[Observation], service_rate: float | None, spec: Autoscaling
) -> float:
    """
    Return what the owner of a hot partition would process in addition, in each of these samples.

    An owner that can process all its partitions would gain nothing.
    """
    if service_rate is None or len(observations) < GAIN_SAMPLES:
        return 0.0
    gains = []
    for sample in (each.sample for each in observations):
        within_s = catch_up_seconds(sample, spec)
        missing = (
            (
                each.moving_rate,
                each.arrival_rate + each.backlog / within_s + each.neighbour_rate - service_rate,
            )
            for each in _hot(sample, service_rate, spec)
        )
        gains.append(max((min(moves, lacks) for moves, lacks in missing), default=0.0))
    return max(0.0, min(gains))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
