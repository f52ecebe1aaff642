"""The HPA of the model does what the examples of Kubernetes' documentation say."""

from itertools import pairwise

import pytest

from tests.simulation.autoscaling.hpa import (
    SCALE_DOWN,
    SCALE_UP,
    HorizontalPodAutoscaler,
    HpaSpec,
    Policy,
    PolicyType,
    Rules,
    SelectPolicy,
    replicas_by_metric,
)

PODS_OR_PERCENT = (Policy(PolicyType.PODS, 4, 60), Policy(PolicyType.PERCENT, 10, 60))


def spec_of(target: float = 100, high: int = 100, **fields: Rules) -> HpaSpec:
    return HpaSpec(1, high, target, **fields)


@pytest.mark.parametrize(
    ("replicas", "average", "target", "desired"),
    [
        pytest.param(2, 200, 100, 4, id="doubled"),
        pytest.param(4, 50, 100, 2, id="halved"),
        pytest.param(50, 90, 75, 60, id="example-of-the-configurable-tolerance"),
        pytest.param(10, 109, 100, 10, id="within-the-tolerance-above"),
        pytest.param(10, 91, 100, 10, id="within-the-tolerance-below"),
        pytest.param(10, 111, 100, 12, id="above-the-tolerance"),
    ],
)
def test_the_number_follows_the_ratio_of_average_and_target(
    replicas: int, average: float, target: float, desired: int
) -> None:
    assert replicas_by_metric(replicas, replicas * average, spec_of(target)) == desired


def test_a_tolerance_of_its_own_for_growth() -> None:
    spec = spec_of(100, up=Rules(SCALE_UP.policies, tolerance=0.05))
    assert replicas_by_metric(10, 10 * 104, spec) == 10
    assert replicas_by_metric(10, 10 * 106, spec) == 11


def numbers(spec: HpaSpec, replicas: int, metric: float, *times_s: float) -> list[int]:
    """Numbers after syncs at these times."""
    found, hpa = [], HorizontalPodAutoscaler(spec)
    for now_s in times_s:
        replicas = hpa.sync(now_s, replicas, metric)
        found.append(replicas)
    return found


def test_the_policy_that_allows_the_highest_change_applies() -> None:
    """80 replicas, 10 are desired: 8 are removed, of 72 again 8, and below 40 there are 4 a minute."""
    spec = spec_of(1, down=Rules(PODS_OR_PERCENT))
    found = numbers(spec, 80, 10, *range(0, 60 * 14, 60))
    assert found[:3] == [72, 64, 57]
    below = [each for each in found if each < 40]
    assert [before - after for before, after in pairwise(below)][:3] == [4, 4, 4]


def test_a_policy_looks_back_for_its_period() -> None:
    spec = spec_of(1, down=Rules(PODS_OR_PERCENT))
    assert numbers(spec, 80, 10, 0, 15, 30, 60) == [72, 72, 72, 64]


def test_the_policy_that_allows_the_lowest_change_applies_if_it_is_selected() -> None:
    down = Rules(
        (Policy(PolicyType.PERCENT, 10, 60), Policy(PolicyType.PODS, 5, 60)), select=SelectPolicy.MIN
    )
    assert numbers(spec_of(1, down=down), 100, 10, 0) == [95]


def test_a_direction_can_be_disabled() -> None:
    assert numbers(spec_of(1, down=Rules((), select=SelectPolicy.DISABLED)), 10, 1, 0, 600) == [10, 10]


def test_growth_by_default_adds_four_pods_or_doubles_each_fifteen_seconds() -> None:
    assert numbers(spec_of(1), 1, 90, 0, 15, 30, 45, 60) == [5, 10, 20, 40, 80]


def test_the_highest_recommendation_of_five_minutes_applies_before_pods_are_removed() -> None:
    hpa = HorizontalPodAutoscaler(spec_of(1))
    assert hpa.sync(0, 10, 10) == 10
    assert [hpa.sync(now_s, 10, 4) for now_s in range(15, 300, 15)] == [10] * 19
    assert hpa.sync(300, 10, 4) == 4
    assert SCALE_DOWN.stabilization_s == 300


def test_a_metric_that_cannot_be_read_changes_nothing() -> None:
    assert HorizontalPodAutoscaler(spec_of(1)).sync(0, 3, None) == 3


def test_the_number_stays_within_its_bounds() -> None:
    assert numbers(spec_of(1, high=6), 4, 90, 0) == [6]
    assert numbers(spec_of(1, down=Rules(SCALE_DOWN.policies)), 4, 0, 0) == [1]
