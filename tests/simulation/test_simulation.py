"""The simulation: seeds that pass, known bugs that do not, and a run that is the same every time."""

import hashlib
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.simulation.run import simulate
from tests.simulation.zoo import ZOO, Bug
from tests.support.tree import REPO, files

pytestmark = pytest.mark.simulation

# Of one run, and of each round of a soak.
SEEDS = 25
# Further apart than the seeds of one run.
SEEDS_APART = 1_000_000
ZOO_SEEDS = 100
ZOO_STEPS = 1_000
# What a run must have met to mean anything.
FAULTS = ("coordinator crash", "connection reset", "store error", "kill", "leave", "pause", "compaction")
FAULTS_MIN = 30
SITUATIONS = (
    "a static leader came back",
    "commit refused: NOT_COORDINATOR",
    "commit refused: UNKNOWN_MEMBER_ID",
    "crash between write and answer",
    "leave got lost",
    "notice",
)
SITUATIONS_MIN = 10


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A run that is broken on purpose leaves tasks behind that nobody asks; asyncio's word for that is noise here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def first_seed() -> int:
    """Derived from the tree: every change tries others, and the same tree the same ones."""
    digest = hashlib.sha256()
    for path in files("coordinator/*.py", "tests/simulation/*.py"):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


@pytest.mark.soak("simulation")
def test_no_seed_breaks_an_invariant(seed: int) -> None:
    met: Counter[str] = Counter()
    first = first_seed() + seed * SEEDS_APART
    for current in range(first, first + SEEDS):
        outcome = simulate(current)
        met.update(outcome.fired)
        met.update(outcome.history.situations)
    rare = {name: met[name] for name in FAULTS if met[name] < FAULTS_MIN}
    rare |= {name: met[name] for name in SITUATIONS if met[name] < SITUATIONS_MIN}
    assert rare == {}, f"{SEEDS} seeds passed, and hardly met what they are for"


@pytest.mark.parametrize("bug", ZOO.values(), ids=ZOO.keys())
def test_a_known_bug_is_caught(bug: Bug) -> None:
    with bug():
        for seed in range(1, ZOO_SEEDS + 1):
            try:
                simulate(seed, ZOO_STEPS)
            except (AssertionError, KeyError):
                break
        else:
            pytest.fail(f"{ZOO_SEEDS} seeds passed with this bug in the code")
    # The same seed passes without the bug: it is the bug that was caught.
    simulate(seed, ZOO_STEPS)


def test_a_seed_does_the_same_in_every_process() -> None:
    program = (
        "from tests.simulation.run import simulate; print([simulate(s, 1000).trace for s in range(1, 4)])"
    )
    traces = set()
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=REPO,
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        traces.add(done.stdout)
    assert len(traces) == 1
