"""The soak runner: goes on where it was, writes down how it ended, says how to run a failing round again."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import soak


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the checkout; its commit is known."""
    monkeypatch.setattr(soak, "REPO", tmp_path)
    monkeypatch.setattr(soak, "MEASUREMENTS", tmp_path / "docs" / "measurements")
    monkeypatch.setattr(soak, "commit", lambda: "abc1234")
    return tmp_path


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, int]], list[int]]:
    """Stand-in for the suite: the exit code by seed (0 if not named); the seeds that ran."""
    ran: list[int] = []

    def play(codes: dict[int, int]) -> list[int]:
        def run(suite: str, seeds: Sequence[int]) -> soak.Ran:
            assert suite == "thing"
            for number, seed in enumerate(seeds, start=1):
                ran.append(seed)
                code = codes.get(seed, 0)
                if code < 0:
                    raise KeyboardInterrupt
                if code:
                    return soak.Ran(code, number, Counter({"kills": 1_000 * number}))
            return soak.Ran(0, len(seeds), Counter({"kills": 1_000 * len(seeds)}))

        monkeypatch.setattr(soak, "run", run)
        return ran

    return play


def rows(checkout: Path) -> list[list[str]]:
    page = (checkout / "docs/measurements/soak-thing.md").read_text().splitlines()
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in page[4:]]


def test_every_round_has_its_own_seed_and_the_end_is_recorded(
    checkout: Path, rounds: Callable[[dict[int, int]], list[int]]
) -> None:
    ran = rounds({})
    assert soak.soak("thing", 3, seed=7) == 0
    assert ran == [7, 8, 9]
    assert [row[1:5] for row in rows(checkout)] == [["abc1234", "7–9", "3", "passed: 3,000 kills"]]


def test_a_soak_that_was_stopped_goes_on_with_the_round_it_was_in(
    checkout: Path, rounds: Callable[[dict[int, int]], list[int]]
) -> None:
    rounds({8: -1})
    with pytest.raises(KeyboardInterrupt):
        soak.soak("thing", 3, seed=7)
    assert json.loads((checkout / "build/soak/thing.json").read_text())["done"] == 1
    ran = rounds({})
    ran.clear()
    assert soak.soak("thing", 3, seed=1000) == 0
    assert ran == [8, 9]
    assert [row[2:5] for row in rows(checkout)] == [["7–9", "3", "passed: 3,000 kills"]]


def test_a_failing_round_ends_the_soak_and_says_how_to_see_it_again(
    checkout: Path, rounds: Callable[[dict[int, int]], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    ran = rounds({8: 1})
    assert soak.soak("thing", 3, seed=7) == 1
    assert ran == [7, 8]
    assert [row[2:5] for row in rows(checkout)] == [["7–8", "2", "failed at seed 8: 2,000 kills"]]
    assert "ROTA_SEED=8 .venv/bin/pytest --soak thing" in capsys.readouterr().out


def test_rounds_that_share_a_process_end_with_the_one_that_fails(
    checkout: Path, rounds: Callable[[dict[int, int]], list[int]]
) -> None:
    ran = rounds({11: 1})
    assert soak.soak("thing", 5, seed=7, together=2) == 1
    assert ran == [7, 8, 9, 10, 11]
    assert soak.soak("thing", 3, seed=21, together=2) == 0
    assert ran[5:] == [21, 22, 23]
    assert [row[2:5] for row in rows(checkout)] == [
        ["7–11", "5", "failed at seed 11: 5,000 kills"],
        ["21–23", "3", "passed: 3,000 kills"],
    ]


def test_a_suite_that_nobody_marked_is_refused(
    checkout: Path, rounds: Callable[[dict[int, int]], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    rounds({7: soak.EXIT_NO_TESTS})
    assert soak.soak("thing", 3, seed=7) == 2
    assert 'no test has the mark soak("thing")' in capsys.readouterr().err
    assert not (checkout / "docs").exists()


def test_the_counters_of_each_test_are_summed_also_of_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["tests.support.report", "tests.support.selection"]\n'
    )
    (tmp_path / "test_counting.py").write_text(COUNTING)
    monkeypatch.setattr(soak, "REPO", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    assert soak.run("counted", [7]) == soak.Ran(1, 1, Counter({"kills": 3, "commits": 5}))
    # A test without a seed runs once; the first seed that fails is the last one.
    assert soak.run("counted", [5, 6, 7, 8]) == soak.Ran(1, 3, Counter({"kills": 7, "commits": 15}))
    assert soak.run("counted", [5, 6]) == soak.Ran(0, 2, Counter({"kills": 5, "commits": 10}))


COUNTING = """
import pytest

@pytest.mark.soak("counted")
def test_one(counters):
    counters["kills"] += 1

@pytest.mark.soak("counted")
def test_two(counters, in_soak, seed):
    counters.update(kills=2, commits=5)
    assert not in_soak or seed != 7
"""
