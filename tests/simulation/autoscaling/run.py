"""Runs one trace with one autoscaler and one seed, and scores it."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from rota_operator.autoscaling.replica_counts import fit
from rota_operator.spec.workload import Autoscaling
from tests.simulation.autoscaling.figures import RECORDS_PER_S
from tests.simulation.autoscaling.group import ModelGroup
from tests.simulation.autoscaling.keda import KafkaTrigger
from tests.simulation.autoscaling.scalers import KedaScaler, RotaScaler, Scaler
from tests.simulation.autoscaling.traces import DEFAULT_STRATEGY, HOUR, MINUTE, PARTITIONS, STEP_S, Trace

# A record that is not processed within this time misses the objective: the default of lagSecondsTarget.
LAG_SLA_S = 60
# A change of the other direction within this time after a change is a flap.
FLAP_S = 15 * MINUTE
# Rota with its defaults, and the same bounds for both.
SPEC = Autoscaling.model_validate({"enabled": True, "max_replica_count": PARTITIONS}, by_name=True)


@dataclass(frozen=True, slots=True)
class Score:
    """Cost of one run; of several runs, the sums."""

    # Time in which the oldest record was older than LAG_SLA_S.
    late_s: float = 0.0
    # Pods that exist count, whether or not they have started.
    replica_hours: float = 0.0
    rebalances: int = 0
    flaps: int = 0
    changes: int = 0
    # Changes while nothing was known.
    changes_in_gaps: int = 0
    # Replicas beyond the initial number, at most; of several runs, the most.
    added: int = 0

    def __add__(self, other: "Score") -> "Score":
        sums = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name != "added"
        }
        return Score(**sums, added=max(self.added, other.added))


@dataclass(frozen=True, slots=True)
class Point:
    """State at the end of a step."""

    at_s: float
    replicas: int
    backlog: float
    oldest_s: float


def run(
    trace: Trace, arrivals: Sequence[Sequence[float]], seed: int, trigger: KafkaTrigger | None
) -> tuple[Score, Sequence[Point]]:
    """Run a trace; scaled by KEDA with a trigger, by Rota without."""
    chance = random.Random(f"{trace.name} {seed} pods")
    first = sum(map(sum, arrivals[:12])) / (12 * STEP_S)
    initial = fit(math.ceil(first / (RECORDS_PER_S * SPEC.target_utilization)), PARTITIONS, SPEC)
    # Kafka's clients have no strategy that balances loads.
    strategy = trace.strategy if trigger is None else DEFAULT_STRATEGY
    group = ModelGroup(trace, initial, chance, strategy)
    scaler: Scaler = (
        RotaScaler(group, SPEC, chance)
        if trigger is None
        else KedaScaler(group, trigger, (SPEC.min_replica_count, PARTITIONS), chance)
    )
    late_s, in_gaps, changes, points = 0.0, 0, list[tuple[float, int]](), list[Point]()
    for records in arrivals:
        before = group.replicas
        scaler.act()
        if group.replicas != before:
            changes.append((group.now_s, group.replicas - before))
            in_gaps += not trace.is_known(group.now_s)
        group.step(records)
        oldest_s = group.oldest_s()
        late_s += STEP_S if oldest_s > LAG_SLA_S else 0
        points.append(Point(group.now_s, group.replicas, group.backlog(), oldest_s))
    score = Score(
        late_s=late_s,
        replica_hours=group.pod_seconds / HOUR,
        rebalances=len(group.rebalances),
        flaps=flaps_of(changes),
        changes=len(changes),
        changes_in_gaps=in_gaps,
        added=max(each.replicas for each in points) - initial,
    )
    return score, points


def flaps_of(changes: Sequence[tuple[float, int]]) -> int:
    """Count changes that take back the direction of the one before within FLAP_S. Each is its time and its difference."""
    return sum(
        (difference > 0) is not (before > 0) and at_s - before_s <= FLAP_S
        for (before_s, before), (at_s, difference) in pairwise(changes)
    )
