"""Runs are sets of whole numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from rota_sidecar.core.ledger.runs import Run, Runs

NUMBERS = some.integers(0, 30)
RANGES = some.tuples(NUMBERS, some.integers(1, 8)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))


def made(numbers: set[int]) -> Runs:
    runs = Runs()
    for number in numbers:
        runs.add(number, number + 1)
    return runs


def spread(runs: list[Run]) -> list[int]:
    return [number for first, end in runs for number in range(first, end)]


@given(some.sets(NUMBERS), RANGES)
def test_what_is_put_in_is_there_once(numbers: set[int], more: tuple[int, int]) -> None:
    runs = made(numbers)
    runs.add(*more)
    assert spread(list(runs)) == sorted(numbers | set(range(*more)))
    assert runs.count == len(numbers | set(range(*more)))


@given(some.sets(NUMBERS))
def test_runs_that_touch_are_one(numbers: set[int]) -> None:
    runs = list(made(numbers))
    assert all(one.end < other.first for one, other in pairwise(runs))


@given(some.sets(NUMBERS), RANGES)
def test_what_is_taken_out_was_there_and_is_no_more(numbers: set[int], less: tuple[int, int]) -> None:
    runs = made(numbers)
    assert spread(runs.remove(*less)) == sorted(numbers & set(range(*less)))
    assert spread(list(runs)) == sorted(numbers - set(range(*less)))
    assert runs.count == len(numbers - set(range(*less)))


@given(some.sets(NUMBERS), some.integers(0, 10), NUMBERS)
def test_the_lowest_are_taken_first_and_none_from_the_bound_on(
    numbers: set[int], count: int, before: int
) -> None:
    runs = made(numbers)
    taken = sorted(number for number in numbers if number < before)[:count]
    assert spread(runs.lowest(count, before)) == taken
    assert spread(list(runs)) == sorted(numbers - set(taken))
    assert runs.count == len(numbers) - len(taken)


@given(some.sets(NUMBERS), RANGES)
def test_what_is_missing_is_found(numbers: set[int], wanted: tuple[int, int]) -> None:
    runs = made(numbers)
    missing = [number for number in range(*wanted) if number not in numbers]
    assert spread(runs.gaps(*wanted)) == missing
    assert runs.missing(*wanted) == (missing[0] if missing else wanted[1])
    assert runs.covers(*wanted) == (not missing)
