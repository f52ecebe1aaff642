"""
Which tests run: pytest's hooks for tiers, what their processes share among them, and soak suites.

A test without the mark of a tier belongs to `unit`, so that `-m unit` means "all that starts nothing" without
a mark on every small test.
"""

import gc
import os
from collections.abc import Iterator
from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.report import SEED_BEGUN, report_to_soak

# Processes that run paired tests: each has a core.
PAIR = 2
# The variable with the seed, or with the seeds of a soak's rounds that share this process, and a comma between two.
SEEDS = "ROTA_SEED"
HEAVY_TIERS = ("process", "simulation", "kafka", "api_server", "cluster", "spark")
# Marks by whose text modules are chosen: pytest needs some 15 s to read all.
CHOOSING = (*HEAVY_TIERS, "soak")


def text_of(mark: str) -> str:
    """Return a mark as it is written in a module."""
    return f"pytest.mark.{mark}"


def modules_with(mark: str, tests: Path) -> list[str]:
    """Return the modules in whose text a mark is: all that a run of a heavy tier reads, or of a soak."""
    return [str(file) for file in sorted(tests.rglob("test_*.py")) if text_of(mark) in file.read_text()]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--soak SUITE`: the tests of one soak suite. `--share FOLDER`: those that no other process takes, module by module."""
    parser.addoption("--soak", metavar="SUITE", help="run only the tests with the mark soak(SUITE)")
    for option, what in (("--share", "modules"), ("--share-tests", "tests")):
        parser.addoption(
            option,
            metavar="FOLDER",
            type=Path,
            help=f"run the {what} that no other process with this folder has begun",
        )


def pytest_configure(config: pytest.Config) -> None:
    """Sharing is a plugin of its own: it takes from what all others have left."""
    for option, whole_modules in (("--share", True), ("--share-tests", False)):
        folder = config.getoption(option)
        if folder is not None:
            config.pluginmanager.register(Share(folder, whole_modules=whole_modules))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test exactly one tier, and choose a soak suite when one is asked for."""
    texts = {path: path.read_text() for path in {item.path for item in items}}
    written = {path: {name for name in CHOOSING if text_of(name) in text} for path, text in texts.items()}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        tiers = marks.intersection(HEAVY_TIERS)
        if len(tiers) > 1:
            raise pytest.UsageError(
                f"{item.nodeid} is in two tiers ({', '.join(sorted(tiers))}); leave one mark"
            )
        if not tiers:
            item.add_marker("unit")
        for name in sorted(marks.intersection(CHOOSING) - written[item.path]):
            raise pytest.UsageError(f"{item.nodeid} has the mark {name}: write {text_of(name)} in its module")
    suite = config.getoption("--soak")
    if suite is None:
        choose(config, items, [item for item in items if not _is_for_soaks_only(item)])
    else:
        choose(
            config, items, [item for item in items if (suite,) in [m.args for m in item.iter_markers("soak")]]
        )


def _is_for_soaks_only(item: pytest.Item) -> bool:
    return any(mark.kwargs.get("only", False) for mark in item.iter_markers("soak"))


class Share:
    """
    Select this process's share of tests that several processes run side by side, so that they end at about the same time.

    Each process takes the next module that no other has begun, those that take longest first. A module stays whole, because its
    tests share what they start; where they share nothing, each test is taken alone.

    Tests with the mark `paired` come last. The first two processes that have nothing else to do run them, and keep what they have
    started; they begin when the tests of all processes but these are over.
    """

    def __init__(self, begun: Path, *, whole_modules: bool) -> None:
        begun.mkdir(parents=True, exist_ok=True)
        self._begun = begun
        self._whole_modules = whole_modules
        # Locked in common by each process that runs other tests than paired ones.
        self._others = (begun / "others").open("w")

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """As pytest's own loop, over tests that are known only when their turn comes."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        flock(self._others, LOCK_SH)
        taken = self._taken(session.items)
        item, is_waiting = next(taken, None), True
        while item is not None:
            # What the two have in common is not torn down between them.
            following = next(taken, None)
            if is_waiting and _is_paired(item):
                # The last of the other tests is torn down; outside of any test, no time limit counts.
                is_waiting = False
                self._wait_for_others()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def _wait_for_others(self) -> None:
        # Collections while a test is timed are as short as in a new process.
        gc.collect()
        gc.freeze()
        flock(self._others, LOCK_UN)
        flock(self._others, LOCK_EX)
        flock(self._others, LOCK_UN)

    def pytest_unconfigure(self) -> None:
        """Let those go on that wait for the tests of this process."""
        self._others.close()

    def _taken(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        paired = [item for item in items if _is_paired(item)]
        yield from self._claimed([item for item in items if not _is_paired(item)])
        if paired and any(self._claim(f"pair {number}") for number in range(PAIR)):
            yield from self._claimed(paired)

    def _claimed(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        # pytest may put other tests between those of a module.
        together: dict[str, list[pytest.Item]] = {}
        for item in items:
            key = str(item.path) if self._whole_modules else item.nodeid
            together.setdefault(key, []).append(item)
        for name, tests in sorted(together.items(), key=lambda each: _longest_s(each[1]), reverse=True):
            # A module may have tests of both kinds.
            if self._claim(f"{name}{' paired' * _is_paired(tests[0])}"):
                yield from tests

    def _claim(self, what: str) -> bool:
        """Return whether no other process has claimed it before."""
        try:
            (self._begun / sha256(what.encode()).hexdigest()).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _is_paired(item: pytest.Item) -> bool:
    return item.get_closest_marker("paired") is not None


def _longest_s(tests: list[pytest.Item]) -> float:
    """Longest time that one of these tests may take by its mark; 0 without one."""
    return max((mark.args[0] for item in tests if (mark := item.get_closest_marker("timeout"))), default=0.0)


def choose(config: pytest.Config, items: list[pytest.Item], chosen: list[pytest.Item]) -> None:
    """Run these only."""
    among = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in among])
    items[:] = chosen


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with a seed once for each seed of the rounds of a soak that share a process."""
    seeds = os.environ.get(SEEDS, "").split(",")
    if len(seeds) == 1 or "seed" not in metafunc.fixturenames:
        return
    suite, of_test = metafunc.config.getoption("--soak"), metafunc.definition.iter_markers
    # Some tests have seeds of their own.
    if (suite,) in [mark.args for mark in of_test("soak")] and not any(
        "seed" in mark.args[0] for mark in of_test("parametrize")
    ):
        metafunc.parametrize("seed", seeds, indirect=True)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run: fixed in `make test`, another one in every round of a soak."""
    found = int(getattr(request, "param", os.environ.get(SEEDS, "1")))
    report_to_soak({SEED_BEGUN: found})
    return found


@pytest.fixture
def in_soak(request: pytest.FixtureRequest) -> bool:
    """Return True during a soak, which may take longer than `make test`."""
    return bool(request.config.getoption("--soak"))
