"""Costs of a scaled workload, computed from what was written and sampled."""

import pytest

from tests.cluster.disruptions import scores
from tests.cluster.disruptions.scores import Sample, Span

SPAN = Span(1_000, 101_000)
EVERYTHING = frozenset({0, 1})


def test_a_record_counts_as_repeated_each_time_it_is_processed_again() -> None:
    processed = [(1, 2_000), (2, 3_000), (1, 4_000), (1, 5_000), (2, 102_000)]
    assert scores.repeated(processed, SPAN) == 2, "what comes after the trace is not of it"
    assert scores.first_times(reversed(processed)) == {1: 2_000, 2: 3_000}


@pytest.mark.parametrize(
    ("sent_ms", "done_ms", "expected_s"),
    [
        pytest.param({1: 1_000}, {1: 60_000}, 0, id="in time"),
        pytest.param({1: 1_000}, {1: 71_000}, 10, id="10 s too late"),
        pytest.param({1: 1_000, 2: 2_000}, {1: 71_000, 2: 73_000}, 12, id="two at the same time"),
        pytest.param({1: 1_000, 2: 2_000}, {1: 73_000, 2: 72_000}, 12, id="the later one is processed first"),
        pytest.param({1: 1_000, 2: 20_000}, {1: 66_000, 2: 90_000}, 15, id="one after the other"),
        pytest.param({1: 1_000}, {}, 40, id="until the end of the trace"),
        pytest.param({1: 90_000}, {}, 0, id="too young at the end of the trace"),
        pytest.param({1: 1_000}, {1: 150_000}, 40, id="processed after the trace"),
    ],
)
def test_time_counts_as_late_while_the_oldest_record_is_too_old(
    sent_ms: dict[int, int], done_ms: dict[int, int], expected_s: float
) -> None:
    assert scores.late_s(sent_ms, done_ms, SPAN, 60) == pytest.approx(expected_s)


def test_lag_is_what_was_sent_and_not_processed() -> None:
    assert scores.lags({1: 10, 2: 20, 3: 30}, {1: 25, 2: 40}, [5, 10, 22, 25, 35, 50]) == [0, 1, 2, 1, 2, 1]


def test_partitions_are_unowned_from_their_owners_end_to_the_next_ones_begin() -> None:
    first = [(500, "assigned", EVERYTHING), (2_000, "revoking", frozenset({1})), (9_000, "ended", EVERYTHING)]
    second = [
        (2_700, "assigned", frozenset({1})),
        (9_100, "assigned", frozenset({0})),
        (100_900, "ended", EVERYTHING),
    ]
    third = [(101_500, "assigned", EVERYTHING)]
    notices = [("first", first), ("second", second), ("third", third)]
    assert scores.unowned_s(notices, SPAN) == pytest.approx(0.8), (
        "0.7 s and 0.1 s; the last gap ends after the trace"
    )


def test_the_generation_is_the_highest_one_until_then() -> None:
    events = [
        {"event": "started", "monotonic_ms": 1},
        {"event": "assigned", "generation": 3, "monotonic_ms": 2},
        {"event": "generation", "generation": -1, "monotonic_ms": 3},
        {"event": "assigned", "generation": 5, "monotonic_ms": 9},
    ]
    assert [scores.generation(events, at_ms) for at_ms in (1, 2, 8, 9)] == [0, 3, 3, 5]


def test_pods_count_for_as_long_as_they_exist() -> None:
    samples = [Sample(0, 2, 2), Sample(60, 6, 2), Sample(90, 6, 6)]
    assert scores.pod_minutes(samples, 120) == pytest.approx(2 + 1 + 3)
