"""
Decides the number of replicas of a group from its inputs, with a reason and a sentence for people.

`decide(history, spec)` is `judge(summarize(history, spec), spec)`: the same inputs give the same decision again.
"""

from dataclasses import dataclass
from enum import StrEnum

from rota_operator.autoscaling.history import History
from rota_operator.autoscaling.inputs import Inputs, Knowledge, summarize
from rota_operator.autoscaling.replica_counts import NEED_MAX, Bounds, bounds_of, fit, rounded_up
from rota_operator.spec.workload import Autoscaling

# Assumed duration of a rebalance while none was measured.
PAUSE_DEFAULT_MS = 3_000
# A load that is this much higher than what has lasted for two samples still rises: growth waits for what it rises to, since the next
# change has to wait for minChangeIntervalSeconds. Growth waits for nothing once records wait for this share of lagSecondsTarget.
RISING = 1.25
WAITING_SHARE_MAX = 0.5
# Replicas are removed if the others are enough for this much of the load: else the next variation of it would bring them back.
SHRINK_MARGIN = 1.2
# Replicas that were added stay for so many times minChangeIntervalSeconds.
STAY_INTERVALS = 3


class Reason(StrEnum):
    """Reason of a decision."""

    # Changes.
    LOAD_ABOVE_TARGET = "LoadAboveTarget"
    LAG_ABOVE_TARGET = "LagAboveTarget"
    LOAD_BELOW_TARGET = "LoadBelowTarget"
    OUT_OF_BOUNDS = "OutOfBounds"
    FALLBACK = "Fallback"
    # The same number of replicas, and a rebalance.
    LOAD_SKEWED = "LoadSkewed"
    # No change.
    WITHIN_TARGET = "WithinTarget"
    METRICS_UNKNOWN = "MetricsUnknown"
    SERVICE_RATE_UNKNOWN = "ServiceRateUnknown"
    NO_PARTITIONS = "NoPartitions"
    REBALANCING = "Rebalancing"
    SUSPENDED = "Suspended"
    FEW_SAMPLES = "FewSamples"
    CHANGE_INTERVAL = "ChangeInterval"
    ROLLOUT = "Rollout"
    STABILIZING = "Stabilizing"
    REPLICAS_PENDING = "ReplicasPending"
    PAUSE_ABOVE_GAIN = "PauseAboveGain"
    INEFFECTIVE_CHANGE = "IneffectiveChange"
    HOT_PARTITIONS = "HotPartitions"


@dataclass(frozen=True, slots=True)
class Decision:
    """A number of replicas. Invariant: it differs from `inputs.replicas` if and only if they are to be changed."""

    replicas: int
    reason: Reason
    explanation: str
    inputs: Inputs

    @property
    def is_rebalance(self) -> bool:
        """True if the group is to rebalance with the same number of replicas."""
        return self.reason is Reason.LOAD_SKEWED

    @property
    def is_change(self) -> bool:
        """True if there is something to do."""
        return self.is_rebalance or self.replicas != self.inputs.replicas


@dataclass(frozen=True, slots=True)
class _Need:
    """Numbers of replicas that the load asks for, aligned and within the bounds."""

    now: int
    # Of the load that has lasted for two samples, or of the latest if growth is urgent; the number grows if this is higher.
    sustained: int
    # Of the highest load within minChangeIntervalSeconds, with a margin; the number is not reduced below it.
    peak: int
    # The number before it is aligned and bounded.
    exact: int


def decide(history: History, spec: Autoscaling) -> Decision | None:
    """Decide by the latest sample; None without any."""
    inputs = summarize(history, spec)
    return None if inputs is None else judge(inputs, spec)


def judge(inputs: Inputs, spec: Autoscaling) -> Decision:
    """Decide by the inputs alone."""
    match inputs.knowledge:
        case Knowledge.REBALANCING:
            return _hold(inputs, Reason.REBALANCING, "the group rebalances, or has just done so")
        case Knowledge.SUSPENDED:
            return _hold(inputs, Reason.SUSPENDED, "the members are suspended, so the backlog says nothing")
        case Knowledge.UNKNOWN:
            return _without_metrics(inputs, spec)
        case Knowledge.FEW_SAMPLES:
            text = f"{inputs.good_samples} samples since the observation began or the group rebalanced; more are needed"
            return _hold(inputs, Reason.FEW_SAMPLES, text)
        case Knowledge.GOOD:
            return _by_load(inputs, spec)


def _without_metrics(inputs: Inputs, spec: Autoscaling) -> Decision:
    """Hold; from failureThreshold bad samples on, apply the fallback."""
    threshold, fallback = spec.fallback.failure_threshold, spec.fallback.replicas
    text = f"{inputs.problem} ({inputs.bad_samples} samples in a row)"
    if fallback is None or inputs.bad_samples < threshold:
        return _hold(inputs, Reason.METRICS_UNKNOWN, text)
    replicas = Bounds(spec.min_replica_count, spec.max_replica_count).clamp(fallback)
    if inputs.partitions:
        replicas = bounds_of(spec, inputs.partitions).clamp(fallback)
    if replicas == inputs.replicas:
        return _hold(inputs, Reason.FALLBACK, f"{text}: replicas by the fallback: {replicas}")
    return _change(inputs, spec, replicas, Reason.FALLBACK, f"{text}: replicas by the fallback: {replicas}")


def _by_load(inputs: Inputs, spec: Autoscaling) -> Decision:
    if not inputs.partitions:
        return _hold(inputs, Reason.NO_PARTITIONS, "the group's topics have no partitions")
    need = _need(inputs, spec, inputs.partitions)
    if need is None:
        text = f"{_load(inputs)}; no replica was busy yet, so it is unknown how many records one processes"
        bounded = bounds_of(spec, inputs.partitions).clamp(inputs.replicas)
        if bounded != inputs.replicas:
            text = f"{text}; the bound is {bounded}"
            return _change(inputs, spec, bounded, Reason.OUT_OF_BOUNDS, text)
        return _hold(inputs, Reason.SERVICE_RATE_UNKNOWN, text)
    if need.sustained > inputs.replicas:
        return _grow(inputs, spec, need, inputs.partitions)
    is_less = max(need.now, need.peak) < inputs.replicas
    found = _shrink(inputs, spec, need, inputs.partitions) if is_less else _steady(inputs, spec, need)
    return found if found.is_change or not _is_skewed(inputs, spec) else _rebalance(inputs, spec)


def _is_skewed(inputs: Inputs, spec: Autoscaling) -> bool:
    """
    Return whether a rebalance that moves partitions away from the owner of a hot one wins more than its pause costs.

    Members that join or leave make the group rebalance without one. Where loads are unknown, it is unknown what would move.
    """
    is_changing = inputs.members is None or inputs.members < inputs.replicas or inputs.is_rolling_out
    if is_changing or inputs.is_partial or inputs.is_rebalance_pending or inputs.is_rebalance_ineffective:
        return False
    lost_ms = (inputs.service_rate or 0.0) * inputs.replicas * _pause_ms(inputs)
    return inputs.rebalance_gain * _horizon_ms(spec) > lost_ms


def _rebalance(inputs: Inputs, spec: Autoscaling) -> Decision:
    text = f"{_load(inputs)}; {_named(inputs)}, but a rebalance moves other partitions away from its owner"
    return _change(inputs, spec, inputs.replicas, Reason.LOAD_SKEWED, text)


def _need(inputs: Inputs, spec: Autoscaling, partitions: int) -> _Need | None:
    """ceil((arrival rate + backlog / catchUpSeconds) / (service rate * targetUtilization)); None: the service rate is unknown."""
    demand, peak = inputs.demand or 0.0, inputs.peak_demand or 0.0
    sustained = _growth_demand(inputs, spec)
    if inputs.service_rate is None and max(demand, peak) > 0:
        if inputs.replicas:
            return None
        # Nothing is measured without a replica: begin with one.
        one = fit(1, partitions, spec)
        return _Need(one, one, one, 1)
    exact = _replicas(demand, inputs, spec)
    return _Need(
        now=fit(exact, partitions, spec),
        sustained=fit(_replicas(sustained, inputs, spec), partitions, spec),
        peak=fit(_replicas(peak * SHRINK_MARGIN, inputs, spec), partitions, spec),
        exact=rounded_up(exact),
    )


def needed_replicas(inputs: Inputs, spec: Autoscaling) -> int | None:
    """Return the replicas that the load asks for, neither aligned nor bounded; None: unknown, or more than can be counted."""
    if inputs.knowledge is not Knowledge.GOOD or inputs.demand is None or inputs.service_rate is None:
        return None
    needed = rounded_up(_replicas(inputs.demand, inputs, spec))
    return None if needed >= NEED_MAX else needed


def _replicas(demand: float, inputs: Inputs, spec: Autoscaling) -> float:
    """Return the quotient of demand and what a replica processes at the target utilization, and the spare replicas."""
    if demand <= 0:
        return 0.0
    capacity = (inputs.service_rate or 0.0) * spec.target_utilization
    if demand >= capacity * NEED_MAX:
        return float(NEED_MAX)
    return demand / capacity + _spare(inputs, spec)


def _spare(inputs: Inputs, spec: Autoscaling) -> int:
    """Return how many replicas are kept beyond the need: one, where records would be late before a further one has started."""
    start_ms = inputs.start_ms
    return int(start_ms is not None and start_ms > spec.lag_seconds_target * 1000)


def _grow(inputs: Inputs, spec: Autoscaling, need: _Need, partitions: int) -> Decision:
    text = _needed(inputs, spec, need.now)
    if inputs.members is not None and inputs.members < inputs.replicas:
        pending = inputs.replicas - inputs.members
        return _hold(
            inputs, Reason.REPLICAS_PENDING, f"{text}; {pending} of {inputs.replicas} have not joined"
        )
    if inputs.hot_partitions and _is_enough(inputs, spec):
        if _is_skewed(inputs, spec):
            return _rebalance(inputs, spec)
        return _hold(inputs, Reason.HOT_PARTITIONS, f"{text}, but {_named(inputs)}")
    is_most = need.sustained >= bounds_of(spec, partitions).high
    if not is_most and _is_rising(inputs, spec):
        return _hold(inputs, Reason.STABILIZING, f"{text}, but the load still rises")
    target = need.now
    bound = inputs.ineffective_replicas
    if bound is not None and target > bound:
        target = max(inputs.replicas, bound)
        text = f"{text}; more than {bound} did not process more before"
        if target == inputs.replicas:
            return _hold(inputs, Reason.INEFFECTIVE_CHANGE, text)
    if _costs_more(inputs, spec, target):
        pause = _pause_ms(inputs)
        return _hold(
            inputs, Reason.PAUSE_ABOVE_GAIN, f"{text}; a pause of {pause} ms would cost more than they win"
        )
    is_bound = need.exact <= inputs.replicas
    reason = Reason.LAG_ABOVE_TARGET if inputs.is_late else Reason.LOAD_ABOVE_TARGET
    return _change(inputs, spec, target, Reason.OUT_OF_BOUNDS if is_bound else reason, text)


def _is_rising(inputs: Inputs, spec: Autoscaling) -> bool:
    """Return whether the load rises so fast that growth is to wait for its height, and there is time to wait."""
    if inputs.demand is None or inputs.sustained_demand is None or _is_urgent(inputs, spec):
        return False
    return inputs.demand > inputs.sustained_demand * RISING


def _growth_demand(inputs: Inputs, spec: Autoscaling) -> float:
    """Return the demand that is reason enough to grow: one that has lasted for two samples, or the latest if growth is urgent."""
    if inputs.sustained_demand is None or _is_urgent(inputs, spec):
        return inputs.demand or 0.0
    return inputs.sustained_demand


def _is_enough(inputs: Inputs, spec: Autoscaling) -> bool:
    """Return whether the replicas can process all that replicas can; a hot partition keeps one of them above the target utilization."""
    return _growth_demand(inputs, spec) <= (inputs.service_rate or 0.0) * inputs.replicas


def _named(inputs: Inputs) -> str:
    names = ", ".join(inputs.hot_partitions)
    text = f"{names}: more load than one replica processes, so further replicas do not help"
    return f"{text}, and a rebalance has moved nothing" if inputs.is_rebalance_ineffective else text


def _is_urgent(inputs: Inputs, spec: Autoscaling) -> bool:
    """
    Return whether growth waits neither for a second sample nor for the height of the load.

    It does not if records wait for long, nor if they will: then a backlog that takes longer than a polling interval shows that the sample
    was no single deviation.
    """
    wait_seconds = inputs.wait_seconds or 0.0
    if inputs.will_be_late and wait_seconds > spec.polling_interval:
        return True
    return max(inputs.lag_seconds or 0.0, wait_seconds) > spec.lag_seconds_target * WAITING_SHARE_MAX


def _costs_more(inputs: Inputs, spec: Autoscaling, target: int) -> bool:
    """Return whether the replicas win back less within catchUpSeconds than all lose in the pause of the rebalance."""
    return (target - inputs.replicas) * _horizon_ms(spec) <= inputs.replicas * _pause_ms(inputs)


def _horizon_ms(spec: Autoscaling) -> int:
    """Return the time within which a change has to win back what its pause costs."""
    return max(spec.catch_up_seconds, spec.min_change_interval_seconds) * 1000


def _pause_ms(inputs: Inputs) -> int:
    return PAUSE_DEFAULT_MS if inputs.pause_ms is None else max(0, inputs.pause_ms)


def _shrink(inputs: Inputs, spec: Autoscaling, need: _Need, partitions: int) -> Decision:
    target = max(need.now, need.peak)
    text = _needed(inputs, spec, target)
    high = bounds_of(spec, partitions).high
    wait_ms = spec.min_change_interval_seconds * 1000
    stay_ms = STAY_INTERVALS * wait_ms
    is_short = inputs.observed_ms < wait_ms
    is_new = inputs.since_growth_ms is not None and inputs.since_growth_ms < stay_ms
    if is_short or is_new or inputs.is_partial or inputs.is_late:
        if inputs.replicas > high:
            return _change(inputs, spec, high, Reason.OUT_OF_BOUNDS, f"the maximum is {high}")
        if inputs.is_partial:
            return _hold(
                inputs, Reason.METRICS_UNKNOWN, f"{text}, but the load of some partitions is unknown"
            )
        if inputs.is_late:
            return _hold(inputs, Reason.LAG_ABOVE_TARGET, f"{text}, but the lag is above its target")
        seconds = inputs.observed_ms // 1000
        said = (
            f"the load was observed for {seconds} s only"
            if is_short
            else f"added ones stay for {stay_ms // 1000} s"
        )
        return _hold(inputs, Reason.STABILIZING, f"{text}, but {said}")
    return _change(inputs, spec, target, Reason.LOAD_BELOW_TARGET, text)


def _steady(inputs: Inputs, spec: Autoscaling, need: _Need) -> Decision:
    if inputs.hot_partitions:
        return _hold(inputs, Reason.HOT_PARTITIONS, f"{_load(inputs)}; {_named(inputs)}")
    if need.now != inputs.replicas:
        text = f"{_needed(inputs, spec, need.now)} now, {need.peak} within the last interval"
        return _hold(inputs, Reason.STABILIZING, text)
    return _hold(inputs, Reason.WITHIN_TARGET, _needed(inputs, spec, need.now))


def _change(inputs: Inputs, spec: Autoscaling, replicas: int, reason: Reason, text: str) -> Decision:
    """Change the number, or rebalance, unless the last change is too recent, or a rollout would replace replicas that drain."""
    if replicas < inputs.replicas and inputs.is_rolling_out:
        return _hold(inputs, Reason.ROLLOUT, f"{text}; none is removed while the workload is rolled out")
    since_ms, wait_ms = inputs.since_change_ms, spec.min_change_interval_seconds * 1000
    if since_ms is not None and since_ms < wait_ms:
        said = f"{text}; the last change was {since_ms // 1000} s ago, minChangeIntervalSeconds is {wait_ms // 1000}"
        return _hold(inputs, Reason.CHANGE_INTERVAL, said)
    return Decision(replicas, reason, text, inputs)


def _hold(inputs: Inputs, reason: Reason, text: str) -> Decision:
    return Decision(inputs.replicas, reason, text, inputs)


def _needed(inputs: Inputs, spec: Autoscaling, replicas: int) -> str:
    spare = ""
    if inputs.start_ms is not None and replicas and _spare(inputs, spec):
        spare = f", one of them spare because a further one takes {inputs.start_ms // 1000} s to start"
    return f"{_load(inputs)}: replicas needed{spare}: {replicas}"


def _load(inputs: Inputs) -> str:
    arrival = "unknown" if inputs.arrival_rate is None else f"{inputs.arrival_rate:,.1f}"
    backlog = "unknown" if inputs.backlog is None else f"{inputs.backlog:,}"
    said = f"{arrival} records/s arrive, {backlog} are uncommitted"
    if inputs.is_late and inputs.lag_seconds is not None:
        said += f", the oldest for {inputs.lag_seconds:,.0f} s"
    if inputs.service_rate is not None:
        said += f", a busy replica processes {inputs.service_rate:,.1f}/s"
    return said
