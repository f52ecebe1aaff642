"""
Memory of the autoscaler about one group: recent samples, the last change, changes that did not help.

A value: each `with_` method returns the history after one more observation. Bounded; what a restart loses is only the time until
enough samples are there again, apart from the last change and the ineffective ones.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import takewhile

from rota_operator.autoscaling.samples import GroupActivity, Sample, problem_of
from rota_operator.spec.workload import Autoscaling

SAMPLES_MAX = 360
INEFFECTIVE_MAX = 5
# Samples of a rate, at most.
GOOD_SAMPLES = 3
# Busy time from which a service rate can be told.
BUSY_SECONDS_MIN = 0.1
# Samples over which the service rate is taken.
RATE_SAMPLES = 12
# After a rebalance, rates and lag are still those of the pause for this long.
SETTLE_MS = 5_000
# A longer time without a sample, in polling intervals, makes the earlier samples outdated.
GAP_INTERVALS = 6
# A change that did not help is not repeated for this long.
INEFFECTIVE_MS = 1_800_000
# Share of the processing rate expected of the added replicas, below which a change did not help.
EFFECTIVE_SHARE = 0.25
# Share of the load that was to move away from hot partitions' owners; if so much of it is still to move, the rebalance did not help.
EFFECTIVE_MOVES = 0.5
# Share of time in which the replicas are busy, from which on something else than the load can be their limit.
BUSY_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the number of replicas by the autoscaler."""

    at_ms: int
    before: int
    after: int
    # Records per second that the group processed before; None: unknown.
    done_rate: float | None
    backlog: int | None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance with the same number of replicas that the autoscaler has ordered, for the neighbours of hot partitions."""

    at_ms: int
    # As TOPIC-NUMBER, with the records per second that were to move away from their owners; empty: its effect was judged, or is not known.
    moving_rates: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class IneffectiveChange:
    """More replicas that did not process more: something else is the limit. With the same number: a rebalance that moved nothing."""

    at_ms: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Observation:
    """A sample, and what it is worth beside the one before it."""

    sample: Sample
    # What is wrong with it; empty if nothing is.
    problem: str
    # No rebalance disturbs it.
    is_settled: bool
    # Upper bounds of its partitions' load, which need not be the same partition's: most decisions look no further.
    rate_max: float
    backlog_max: int


@dataclass(frozen=True, slots=True)
class History:
    """
    Invariant: at most SAMPLES_MAX samples, by rising time, without a gap of more than GAP_INTERVALS polling intervals.
    """

    observations: tuple[Observation, ...] = ()
    # Begin of the uninterrupted observation.
    since_ms: int | None = None
    change: Change | None = None
    # True once the effect of `change` was judged, or if there is nothing to judge.
    is_judged: bool = True
    ineffective: tuple[IneffectiveChange, ...] = ()
    # The last one.
    rebalance: Rebalance | None = None
    # Records per second of a replica that is busy, as last known.
    service_rate: float | None = None
    # Time from the last growth until its replicas had joined, before it that of replicas that were there; None: none was measured.
    start_ms: int | None = None
    # The replicas of `change` have not joined yet.
    is_starting: bool = False

    def with_sample(self, sample: Sample, spec: Autoscaling) -> "History":
        """Add a sample. One of the same time as the last is ignored; a clock that was set back begins the observation anew."""
        last = self.observations[-1].sample if self.observations else None
        if last is not None and sample.at_ms == last.at_ms:
            return self
        kept, since_ms, change, rebalance = self.observations, self.since_ms, self.change, self.rebalance
        is_back = last is not None and sample.at_ms < last.at_ms
        if (
            is_back
            or last is None
            or sample.at_ms - last.at_ms > GAP_INTERVALS * spec.polling_interval * 1000
        ):
            kept, since_ms, last = (), sample.at_ms, None
        if change is not None and change.at_ms > sample.at_ms:
            change = replace(change, at_ms=sample.at_ms)
        if rebalance is not None and rebalance.at_ms > sample.at_ms:
            rebalance = replace(rebalance, at_ms=sample.at_ms)
        ineffective = tuple(
            replace(each, at_ms=min(each.at_ms, sample.at_ms))
            for each in self.ineffective
            if sample.at_ms - each.at_ms < INEFFECTIVE_MS
        )
        added = observation_of(sample, last)
        grown = replace(
            self,
            observations=(*kept, added)[-SAMPLES_MAX:],
            since_ms=since_ms,
            change=change,
            rebalance=rebalance,
            ineffective=ineffective,
        )
        return grown._with_service_rate()._with_start()._with_judgement()._with_rebalance_judgement()

    def with_change(self, at_ms: int, before: int, after: int) -> "History":
        """Record that the number of replicas was changed by a decision on this history."""
        good = self.good_samples()
        change = Change(at_ms, before, after, self._done_rate(good), good[-1].backlog if good else None)
        return replace(self, change=change, is_judged=after <= before, is_starting=after > before)

    def with_earlier_start(self, start_ms: int | None) -> "History":
        """Add the time that a replica of before took to start, unless that of a growth is known."""
        return replace(self, start_ms=start_ms) if self.start_ms is None else self

    def with_rebalance(self, at_ms: int, partitions: Collection[str]) -> "History":
        """Record that a rebalance was ordered by a decision on this history, for the neighbours of these partitions."""
        good = self.good_samples()
        hottest = good[-1].hottest if good else ()
        moving = tuple(
            (each.name, each.moving_rate)
            for each in hottest
            if each.name in partitions and each.moving_rate > 0
        )
        return replace(self, rebalance=Rebalance(at_ms, moving))

    @property
    def changed_ms(self) -> int | None:
        """Time of the last change, or rebalance with the same number of replicas, by the autoscaler; None: there was none."""
        return max((each.at_ms for each in (self.change, self.rebalance) if each is not None), default=None)

    def good_samples(self) -> tuple[Sample, ...]:
        """Return the last samples since a rebalance settled that say something about the load: at most RATE_SAMPLES, oldest first."""
        return tuple(each.sample for each in self.good_observations())

    def good_observations(self) -> tuple[Observation, ...]:
        """Return the observations of `good_samples`."""
        found: list[Observation] = []
        for each in reversed(self.observations):
            if not each.is_settled or len(found) == RATE_SAMPLES:
                break
            if not each.problem:
                found.append(each)
        return tuple(reversed(found))

    def bad_count(self) -> int:
        """Return the number of the latest samples, one after the other, that say nothing about the load."""
        bad = takewhile(lambda each: bool(each.problem), reversed(self.observations))
        return sum(1 for _ in bad)

    @staticmethod
    def _done_rate(samples: tuple[Sample, ...]) -> float | None:
        """Records per second that the group processed, over the last samples."""
        latest = samples[-GOOD_SAMPLES - 1 :]
        if len(latest) < 2:
            return None
        return sum(each.done for each in latest[1:]) * 1000 / (latest[-1].at_ms - latest[0].at_ms)

    def _with_service_rate(self) -> "History":
        good = [each for each in self.good_samples()[-RATE_SAMPLES:] if each.activity is GroupActivity.STABLE]
        busy, done = sum(each.busy_seconds for each in good), sum(each.done for each in good)
        if busy < BUSY_SECONDS_MIN or not done:
            return self
        return replace(self, service_rate=done / busy)

    def _with_start(self) -> "History":
        """Measure how long the replicas of the last growth took to start, once they have joined."""
        latest, change = self.observations[-1].sample, self.change
        if not self.is_starting or change is None:
            return self
        if latest.replicas != change.after:
            # Another client has changed the number meanwhile.
            return replace(self, is_starting=False)
        if latest.members is None or latest.members < change.after:
            return self
        return replace(self, is_starting=False, start_ms=latest.at_ms - change.at_ms)

    def _with_judgement(self) -> "History":
        """Judge the last change once there are enough samples after it: growth that processes no more did not help."""
        change = self.change
        if self.is_judged or change is None:
            return self
        good = tuple(each for each in self.good_samples() if each.at_ms > change.at_ms)
        # The first one's counts begin before the group had settled.
        if len(good) <= GOOD_SAMPLES or good[-1].replicas != change.after:
            return self
        judged = replace(self, is_judged=True)
        after, backlog = self._done_rate(good), good[-1].backlog
        if change.done_rate is None or after is None or not change.before or backlog is None:
            return judged
        expected = change.done_rate * (1 + EFFECTIVE_SHARE * (change.after / change.before - 1))
        # Some records are always uncommitted: replicas that are idle at times process all that arrives.
        is_waiting = backlog > 0 and backlog >= (change.backlog or 0) and _busy_share(good) >= BUSY_SHARE
        if after >= expected or not is_waiting:
            return judged
        return judged._with_ineffective(IneffectiveChange(good[-1].at_ms, change.before, change.after))

    def _with_rebalance_judgement(self) -> "History":
        """Judge the last rebalance once there are enough samples after it: it did not help if what was to move is still to move."""
        rebalance = self.rebalance
        if rebalance is None or not rebalance.moving_rates:
            return self
        good = tuple(each for each in self.good_samples() if each.at_ms > rebalance.at_ms)
        if len(good) <= GOOD_SAMPLES:
            return self
        judged = replace(self, rebalance=Rebalance(rebalance.at_ms))
        latest = good[-1]
        now = {each.name: each.moving_rate for each in latest.hottest}
        before_rate = sum(rate for _, rate in rebalance.moving_rates)
        if sum(now.get(name, 0.0) for name, _ in rebalance.moving_rates) < before_rate * EFFECTIVE_MOVES:
            return judged
        return judged._with_ineffective(IneffectiveChange(latest.at_ms, latest.replicas, latest.replicas))

    def _with_ineffective(self, found: IneffectiveChange) -> "History":
        return replace(self, ineffective=(*self.ineffective, found)[-INEFFECTIVE_MAX:])


def observation_of(sample: Sample, before: Sample | None) -> Observation:
    """Judge a sample beside the one before it."""
    return Observation(
        sample,
        problem_after(sample, before),
        is_settled(sample, before),
        rate_max=max((each.arrival_rate for each in sample.hottest), default=0.0),
        backlog_max=max((each.backlog for each in sample.hottest), default=0),
    )


def _busy_share(samples: tuple[Sample, ...]) -> float:
    """Return the share of time in which the replicas were busy, over the last samples."""
    latest = samples[-GOOD_SAMPLES - 1 :]
    seconds = (latest[-1].at_ms - latest[0].at_ms) / 1000
    return sum(each.busy_seconds for each in latest[1:]) / (seconds * max(1, latest[-1].replicas))


def is_settled(sample: Sample, before: Sample | None) -> bool:
    """Return whether no rebalance disturbs the sample; one of which the state is unknown disturbs nothing by itself."""
    if sample.activity is GroupActivity.UNKNOWN:
        return True
    if sample.activity is GroupActivity.REBALANCING:
        return False
    if sample.rebalanced_ms is not None and sample.at_ms - sample.rebalanced_ms < SETTLE_MS:
        return False
    known = before is not None and before.activity is not GroupActivity.UNKNOWN
    return not known or before is None or sample.generation == before.generation


def problem_after(sample: Sample, before: Sample | None) -> str:
    """Return what is wrong with a sample, by itself or beside the one before it."""
    if found := problem_of(sample):
        return found
    if before is None or before.generation is None or sample.generation is None:
        return ""
    is_older = sample.generation < before.generation
    return f"generation {sample.generation} is older than {before.generation}" if is_older else ""
