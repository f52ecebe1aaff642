"""
Runs traces with Rota and with KEDA at several thresholds, and compares the scores.

Two choices of the best threshold for a trace, among those with the shortest lateness: the most stable one has the fewest rebalances, the
cheapest one the fewest replica-hours.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from tests.simulation.autoscaling.keda import KafkaTrigger
from tests.simulation.autoscaling.run import Score, run
from tests.simulation.autoscaling.traces import DEFAULT_STRATEGY, TRACES, Trace, arrivals_of

DEFAULT = KafkaTrigger().lag_threshold
# 5 and 50 are those of the examples in KEDA's documentation.
THRESHOLDS = (5, DEFAULT, 20, 50, 100)
# Thresholds of Rota's columns: with the assignment strategy of the trace, and with the default one if that is another.
ROTA = None
ROTA_BY_DEFAULT = 0
# Lateness of two thresholds that differs by less is the same, in seconds for each run.
LATENESS_TOLERANCE_S = 10


class Job(NamedTuple):
    """One trace of TRACES by its name, and one seed, for all autoscalers."""

    trace: str
    seed: int


def scores_of(trace: Trace, seed: int) -> Mapping[int | None, Score]:
    """Run a trace with each autoscaler; returns scores by threshold."""
    arrivals = arrivals_of(trace, seed)
    found: dict[int | None, Score] = {ROTA: run(trace, arrivals, seed, None)[0]}
    if trace.strategy != DEFAULT_STRATEGY:
        by_default = replace(trace, strategy=DEFAULT_STRATEGY)
        found[ROTA_BY_DEFAULT] = run(by_default, arrivals, seed, None)[0]
    for threshold in THRESHOLDS:
        found[threshold] = run(trace, arrivals, seed, KafkaTrigger(threshold))[0]
    return found


def _perform(job: Job) -> Mapping[int | None, Score]:
    return scores_of(next(each for each in TRACES if each.name == job.trace), job.seed)


class Result(NamedTuple):
    """Scores of one trace, summed over its seeds."""

    trace: Trace
    seeds: int
    scores: Mapping[int | None, Score]

    @property
    def rota(self) -> Score:
        return self.scores[ROTA]

    def keda(self, threshold: int) -> Score:
        """Return the score of a threshold."""
        return self.scores[threshold]

    def most_stable(self) -> int:
        """Return the threshold with the fewest rebalances, of those that are late for the shortest time."""
        return min(
            self._punctual(), key=lambda each: (self.keda(each).rebalances, self.keda(each).replica_hours)
        )

    def cheapest(self) -> int:
        """Return the threshold with the fewest replica-hours, of those that are late for the shortest time."""
        return min(self._punctual(), key=lambda each: self.keda(each).replica_hours)

    def _punctual(self) -> Sequence[int]:
        shortest_s = min(self.keda(each).late_s for each in THRESHOLDS)
        return [
            each
            for each in THRESHOLDS
            if self.keda(each).late_s - shortest_s <= LATENESS_TOLERANCE_S * self.seeds
        ]


def race(traces: Sequence[Trace], seeds: Iterable[int], processes: int) -> list[Result]:
    """Run all traces with all seeds, and return the results by trace."""
    numbers = list(seeds)
    # Long traces first, so that no process is left with one at the end.
    jobs = [
        Job(each.name, seed) for each in sorted(traces, key=lambda each: -each.duration_s) for seed in numbers
    ]
    with ProcessPoolExecutor(processes) as pool:
        found = dict(zip(jobs, pool.map(_perform, jobs), strict=True))
    return [
        Result(each, len(numbers), _summed([found[Job(each.name, seed)] for seed in numbers]))
        for each in traces
    ]


def _summed(scores: Sequence[Mapping[int | None, Score]]) -> Mapping[int | None, Score]:
    return {key: sum((each[key] for each in scores), Score()) for key in scores[0]}
