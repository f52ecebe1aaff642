"""
Compare Rota's autoscaler with KEDA's Kafka scaler and its HPA in a simulation, and measure how long decisions take.

The claim: against KEDA with its default threshold on no trace more rebalances or lateness, in sum at most half of the rebalances and no
more replica-hours; goal: the same against the best of five thresholds for each trace. No flap while the load flaps, no change while
nothing is known, at most one replica for a hot partition. Decisions for 1,000 groups take 200 ms of processor time at most. A trace whose
description names an assignment strategy has a row with the default one, without a goal.

Group, pods and traces are those of `tests.simulation.autoscaling`, which names the sources of its figures; decisions, assignments and
drains are the product's own code. A run depends on its seed alone.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.peers import page
from rota_operator.autoscaling.decision import decide
from rota_operator.autoscaling.history import History
from rota_operator.autoscaling.measure import measure
from tests.simulation.autoscaling.group import ModelGroup
from tests.simulation.autoscaling.race import DEFAULT, ROTA_BY_DEFAULT, THRESHOLDS, Result, race
from tests.simulation.autoscaling.run import FLAP_S, LAG_SLA_S, SPEC, Score
from tests.simulation.autoscaling.scalers import reports_of, view_of
from tests.simulation.autoscaling.traces import DEFAULT_STRATEGY, MINUTE, STEP_S, TRACES, arrivals_of

SEEDS, QUICK_SEEDS = 20, 2
PROCESSES = 2
GROUPS, ROUNDS = 1_000, 5
# Samples within minChangeIntervalSeconds, and some more.
SAMPLES = 40
HALF, NO_MORE = page.at_most(0.5), page.at_most(1)
DECIDED_MS, NO_FLAP, NO_ACTION, ONE_MORE = (page.at_most(each) for each in (200, 0, 0, 1))
CHOICES: Sequence[tuple[str, Callable[[Result], int]]] = (
    ("default", lambda _: DEFAULT),
    ("most stable of five", Result.most_stable),
    ("cheapest of five", Result.cheapest),
)

# Rules for single traces: the trace, the figure, and its goal.
RULES: Sequence[tuple[str, str, Callable[[Score], int], page.Goal]] = (
    ("flapping", "flaps in all runs", lambda score: score.flaps, NO_FLAP),
    (
        "missing metrics",
        "changes in all runs while nothing is known",
        lambda score: score.changes_in_gaps,
        NO_ACTION,
    ),
    ("hot partition", "replicas added at most", lambda score: score.added, ONE_MORE),
)


def text_of(score: Score, seeds: int) -> str:
    """Return the means of a sum of scores."""
    return (
        f"late {score.late_s / seeds:,.0f} s, {score.replica_hours / seeds:,.1f} h, "
        f"{score.rebalances / seeds:,.1f} rebalances, {score.flaps / seeds:,.1f} flaps"
    )


def trace_lines(result: Result) -> Iterator[page.Line]:
    """Compare one trace with the default and with the best thresholds."""
    rota, seeds = result.rota, result.seeds
    for choice, threshold_of in CHOICES:
        threshold = threshold_of(result)
        keda = result.keda(threshold)
        more = [
            name
            for name, ours, theirs in (
                ("late", rota.late_s, keda.late_s),
                ("rebalances", rota.rebalances, keda.rebalances),
            )
            if ours > theirs
        ]
        verdict = "met" if not more else f"missed: {', '.join(more)}"
        yield page.Line(
            f"{result.trace.name}, {choice}",
            text_of(rota, seeds),
            f"KEDA at {threshold}: {text_of(keda, seeds)}",
            rota.rebalances / keda.rebalances if keda.rebalances else None,
            f"neither later nor more rebalances: {verdict}",
        )


def sum_lines(results: Sequence[Result]) -> Iterator[page.Line]:
    """Compare the sums over all traces."""
    seeds = results[0].seeds
    rota = sum((each.rota for each in results), Score())
    for choice, threshold_of in CHOICES:
        keda = sum((each.keda(threshold_of(each)) for each in results), Score())
        for name, ours, theirs, goal in (
            ("rebalances", rota.rebalances, keda.rebalances, HALF),
            ("replica-hours", rota.replica_hours, keda.replica_hours, NO_MORE),
            ("seconds late", rota.late_s, keda.late_s, NO_MORE),
        ):
            ratio = ours / theirs
            yield page.Line(
                f"all traces, {name}, {choice}", f"{ours / seeds:,.1f}", f"KEDA {theirs / seeds:,.1f}", ratio,
                page.judged(goal, ratio),
            )  # fmt: skip


def strategy_lines(results: Sequence[Result]) -> Iterator[page.Line]:
    """Print traces with an assignment strategy of their own once more, with the default one."""
    for each in results:
        by_default = each.scores.get(ROTA_BY_DEFAULT)
        if by_default is not None:
            yield page.Line(
                f"{each.trace.name}, with {DEFAULT_STRATEGY} instead of {each.trace.strategy}",
                text_of(by_default, each.seeds),
                f"with {each.trace.strategy}: {text_of(each.rota, each.seeds)}",
            )


def rule_lines(results: Sequence[Result]) -> Iterator[page.Line]:
    """Judge what holds for single traces."""
    by_name = {each.trace.name: each.rota for each in results}
    for name, what, count, goal in RULES:
        if name in by_name:
            found = count(by_name[name])
            yield page.Line(f"{name}: {what}", str(found), goal=page.judged(goal, found))


def time_lines() -> Iterator[page.Line]:
    """Measure the processor time of a round of decisions, of groups with 12 partitions and 2 replicas."""
    trace = TRACES[0]
    group, arrivals = ModelGroup(trace, 2, random.Random(1)), arrivals_of(trace, 1)
    history, last = History(), None
    views = []
    for number, records in enumerate(arrivals[: (SAMPLES + ROUNDS) * SPEC.polling_interval // STEP_S]):
        group.step(records)
        if number % (SPEC.polling_interval // STEP_S) == 0:
            views.append((view_of(group), reports_of(group), int(group.now_s * 1000)))
    for view, reports, at_ms in views[:SAMPLES]:
        last = measure(last, view, reports, group.replicas, at_ms)
        history = history.with_sample(last.sample, SPEC)
    histories, measured_ms, decided_ms = [history] * GROUPS, [], []
    for view, reports, at_ms in views[SAMPLES:]:
        began = time.process_time()
        samples = [measure(last, view, reports, group.replicas, at_ms) for _ in range(GROUPS)]
        between = time.process_time()
        histories = [
            each.with_sample(found.sample, SPEC) for each, found in zip(histories, samples, strict=True)
        ]
        for each in histories:
            decide(each, SPEC)
        measured_ms.append(1000 * (between - began))
        decided_ms.append(1000 * (time.process_time() - between))
        last = samples[0]
    what = f"{GROUPS:,} groups, {len(group.lags())} partitions each"
    decided = sorted(decided_ms)[len(decided_ms) // 2]
    yield page.Line(f"{what}: decided in", f"{decided:,.0f} ms", goal=page.judged(DECIDED_MS, decided))
    yield page.Line(f"{what}: measured in", f"{sorted(measured_ms)[len(measured_ms) // 2]:,.0f} ms")


def main() -> None:
    """Run the benchmark and print its table."""
    names = {each.name.replace(" ", "-"): each for each in TRACES}
    result = page.Page(
        "autoscaling",
        f"simulation, means of {SEEDS} seeds (of {QUICK_SEEDS} with --quick): time in which the oldest record is older than {LAG_SLA_S} s, replica-hours, rebalances, "
        f"changes of direction within {FLAP_S // MINUTE} minutes; Rota with its defaults, KEDA's Kafka scaler and HPA with theirs, and with "
        f"the best of the thresholds {', '.join(map(str, THRESHOLDS))} for each trace: of those with the shortest lateness the one with the "
        "fewest rebalances, and the one with the fewest replica-hours",
        quick=f"with {QUICK_SEEDS} seeds",
        parts=tuple(names),
    )
    seeds = range(1, 1 + (QUICK_SEEDS if result.quick else SEEDS))
    results = race([names[each] for each in result.parts], seeds, PROCESSES)
    lines = [line for each in results for line in trace_lines(each)]
    result.show([*lines, *strategy_lines(results), *sum_lines(results), *rule_lines(results), *time_lines()])


if __name__ == "__main__":
    main()
