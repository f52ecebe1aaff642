"""The simulation: seeds that pass, known bugs that do not, and a run that is the same every time."""

import hashlib
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

import pytest

from tests.simulation.invariants import INVARIANTS, Violation
from tests.simulation.run import Outcome, simulate
from tests.simulation.situations import DELIVERIES, FAULTS, SITUATIONS
from tests.simulation.zoo import BUGS, CANARY, HINTS, LIVENESS, ZOO
from tests.simulation.zoo_deliveries import HINTS_OF_DELIVERIES, ZOO_DELIVERIES
from tests.support.tree import REPO, files, python_path

# They only compute, for as long as the machine needs: a hang is what takes ten times as long as usual.
pytestmark = [pytest.mark.simulation, pytest.mark.timeout(1_200)]

# Of one run, and of each round of a soak: half a second each.
SEEDS = 80
# Of deliveries, two seconds each.
DELIVERING_SEEDS = 25
DELIVERING_STEPS = 2_000
# So many times as many seeds, if it takes them to meet every situation often enough: how often a seed meets one is chance.
SEEDS_FACTOR = 3
# Further apart than the seeds of one run.
SEEDS_APART = 1_000_000
# What a run must have met to mean anything.
FAULTS_MIN = 1_000
SITUATIONS_MIN = 100
DELIVERIES_MIN = 5
ZOO_SEEDS = 200
ZOO_STEPS = 5_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence asyncio's warning: a run that is broken on purpose leaves tasks that are never awaited."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_seed(seed: int) -> int:
    """Derived from the tree: every change tries others, and the same tree the same ones."""
    digest = hashlib.sha256()
    for path in files("coordinator/*.py", "sidecar/*.py", "tests/simulation/*.py"):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big") + seed * SEEDS_APART


@pytest.mark.soak("simulation")
def test_no_seed_breaks_an_invariant(seed: int, report: list[str]) -> None:
    least = dict.fromkeys(FAULTS, FAULTS_MIN) | dict.fromkeys(SITUATIONS, SITUATIONS_MIN)
    ran, met = simulate_until_met(seed, SEEDS, simulate, least)
    report.append(f"{ran} seeds from {first_seed(seed)}")
    report += [f"{met[name]:>7} {name}" for name in least]


@pytest.mark.soak("simulation-deliveries")
def test_no_seed_breaks_an_invariant_of_deliveries(seed: int, report: list[str]) -> None:
    least = dict.fromkeys(DELIVERIES, DELIVERIES_MIN)
    ran, met = simulate_until_met(
        seed, DELIVERING_SEEDS, lambda each: simulate(each, DELIVERING_STEPS, delivers=True), least
    )
    report.append(f"{ran} seeds with deliveries from {first_seed(seed)}")
    report += [f"{met[name]:>7} {name}" for name in least]


def simulate_until_met(
    seed: int, count: int, run: Callable[[int], Outcome], least: Mapping[str, int]
) -> tuple[int, Counter[str]]:
    """Run `count` seeds, and more until each situation was met often enough; return their number, and what they met."""
    met: Counter[str] = Counter()
    first = first_seed(seed)
    for ran in range(1, SEEDS_FACTOR * count + 1):
        met.update(run(first + ran - 1).met)
        if ran >= count and all(met[name] >= bound for name, bound in least.items()):
            return ran, met
    rare = {name: met[name] for name, bound in least.items() if met[name] < bound}
    pytest.fail(f"{SEEDS_FACTOR * count} seeds passed, and hardly met what they are for: {rare}")


@pytest.mark.parametrize("bug", ZOO)
def test_a_known_bug_is_caught(bug: str, report: list[str]) -> None:
    seed, caught = hunt(bug)
    report.append(f"caught at seed {seed:>3}: {bug} ({str(caught)[:80]})")
    # The same seed passes without the bug: it is the bug that was caught.
    assert passes(seed)


@pytest.mark.parametrize("bug", ZOO_DELIVERIES)
def test_a_known_bug_of_deliveries_is_caught(bug: str, report: list[str]) -> None:
    with ZOO_DELIVERIES[bug]():
        seed, caught = first_that_fails(
            range(HINTS_OF_DELIVERIES.get(bug, 1), ZOO_SEEDS + 1), bug, delivers=True
        )
    report.append(f"caught at seed {seed:>3}: {bug} ({str(caught)[:80]})")
    assert passes(seed, delivers=True)


@pytest.mark.parametrize(("invariant", "bug"), LIVENESS.items(), ids=LIVENESS.keys())
def test_liveness_can_fail(invariant: str, bug: str) -> None:
    _, caught = hunt(bug)
    assert isinstance(caught, Violation)
    assert caught.name == invariant


def test_a_false_invariant_is_reported() -> None:
    seed, caught = hunt(CANARY)
    assert isinstance(caught, Violation)
    assert caught.name in INVARIANTS
    assert caught.__notes__ == [f"again: .venv/bin/python -m tests.simulation {seed}"]


@cache
def hunt(bug: str) -> tuple[int, BaseException]:
    """A seed that fails with a bug in the code, and how."""
    hint = HINTS.get(bug, 1)
    with BUGS[bug]():
        return first_that_fails((*range(hint, ZOO_SEEDS + 1), *range(1, hint)), bug)


def first_that_fails(seeds: Iterable[int], bug: str, *, delivers: bool = False) -> tuple[int, BaseException]:
    """The first of these seeds that fails, and how."""
    for seed in seeds:
        try:
            simulate(seed, DELIVERING_STEPS if delivers else ZOO_STEPS, delivers=delivers)
        except (AssertionError, KeyError) as caught:
            # Its frames hold the whole run.
            return seed, caught.with_traceback(None)
    pytest.fail(f"{ZOO_SEEDS} seeds passed with this bug in the code: {bug}")


@cache
def passes(seed: int, *, delivers: bool = False) -> bool:
    """Return whether a seed passes with correct code; raises its violation."""
    steps = DELIVERING_STEPS if delivers else ZOO_STEPS
    return simulate(seed, steps, delivers=delivers).steps >= steps


def test_a_seed_does_the_same_in_every_process() -> None:
    program = "from tests.simulation.run import simulate\nfor seed in range(1, 25): print(simulate(seed, 1000).trace)"
    traces = set()
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=REPO,
            env={"PYTHONHASHSEED": hash_seed, "PATH": "", "PYTHONPATH": python_path()},
            capture_output=True,
            text=True,
            check=True,
        )
        traces.add(done.stdout)
    assert len(traces) == 1
    assert len(set(traces.pop().splitlines())) == 24
