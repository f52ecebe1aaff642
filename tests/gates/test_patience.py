"""A wait ends when its time is up, and a machine that stands still takes little of it."""

from tests.support.processes import LOOK_S_MAX, Patience


def looks_until_over(patience: Patience) -> int:
    """Return the number of looks that the wait allows."""
    looks = 1
    while not patience.is_over():
        looks += 1
    return looks


def test_a_wait_ends_after_its_time() -> None:
    times = iter(range(100))
    assert looks_until_over(Patience(10, lambda: next(times))) == 11


def test_a_standstill_counts_as_one_long_look() -> None:
    times = iter([0, 1, 601, *range(602, 700)])
    assert looks_until_over(Patience(10, lambda: next(times))) == 3 + 10 - 1 - int(LOOK_S_MAX)


def test_slow_looks_do_not_make_a_wait_endless() -> None:
    times = iter(range(0, 100_000, 600))
    assert looks_until_over(Patience(60, lambda: next(times))) == 60 / LOOK_S_MAX + 1
