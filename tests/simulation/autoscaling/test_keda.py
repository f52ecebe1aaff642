"""KEDA's Kafka scaler of the model does what KEDA's documentation and maintainers say."""

import pytest

from tests.simulation.autoscaling.keda import COOLDOWN_S, KafkaTrigger, ScaledObject


@pytest.mark.parametrize(
    ("lag", "consumers"),
    [(1, 1), (10, 1), (11, 2), (20, 2), (21, 5), (50, 5), (51, 10), (1_000, 10)],
)
def test_the_example_of_an_even_distribution(lag: int, consumers: int) -> None:
    """10 partitions, and a threshold of 10, which is the default."""
    trigger = KafkaTrigger(ensure_even_distribution=True)
    assert trigger.metric([lag, *[0] * 9]) == consumers * 10


def test_a_full_topic_asks_for_no_more_replicas_than_partitions() -> None:
    """Issue 2908 of KEDA: 64 partitions, a threshold of 3,000, hence at most 192,000."""
    trigger = KafkaTrigger(lag_threshold=3_000)
    lags = [5_000_000, *[0] * 63]
    assert trigger.metric(lags) == 192_000
    assert KafkaTrigger(lag_threshold=3_000, allow_idle_consumers=True).metric(lags) == 5_000_000


def test_the_last_replica_is_not_started_within_the_tolerance() -> None:
    """Issue 2908 of KEDA: with 63 replicas the average is 3,047.62, which is within 10 % of 3,000."""
    lags = [5_000_000, *[0] * 63]
    scaled = ScaledObject(KafkaTrigger(lag_threshold=3_000), 1, 100)
    assert scaled.sync(0, 63, lags) == 63
    assert ScaledObject(KafkaTrigger(lag_threshold=3_000), 1, 100).sync(0, 50, lags) == 64


def test_partitions_without_lag_can_bound_the_number() -> None:
    lags = [500, 400, 0, 0]
    assert KafkaTrigger().metric(lags) == 40
    assert KafkaTrigger(limit_to_partitions_with_lag=True).metric(lags) == 20


def test_lag_below_the_bound_is_reported_as_it_is() -> None:
    assert KafkaTrigger().metric([7, 8, 9, 0]) == 24


def test_a_group_is_activated_above_the_activation_threshold_and_deactivated_after_the_cooldown() -> None:
    scaled = ScaledObject(KafkaTrigger(activation_lag_threshold=3), 0, 10)
    assert scaled.poll(0, 0, [3, 0]) == 0
    assert scaled.poll(30, 0, [3, 1]) == 1
    assert scaled.poll(60, 1, [0, 0]) == 1
    assert scaled.poll(30 + COOLDOWN_S, 1, [0, 0]) == 0
    assert ScaledObject(KafkaTrigger(), 1, 10).poll(2 * COOLDOWN_S, 1, [0, 0]) == 1


def test_lag_that_cannot_be_read_changes_nothing() -> None:
    scaled = ScaledObject(KafkaTrigger(), 0, 10)
    assert scaled.poll(2 * COOLDOWN_S, 3, None) == 3
    assert scaled.sync(2 * COOLDOWN_S, 3, None) == 3
