"""The tier runner: what counts as passed, what as skipped, and what it says."""

import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.selection import Shard
from tests.support.tree import REPO
from tests.support.unavailable import Unavailable

EMPTY = tiers.Tier("simulation", empty_because="there is nothing to simulate")
FULL = tiers.Tier("unit")


@pytest.mark.parametrize(
    ("tier", "code", "result"),
    [
        (FULL, 0, "passed"),
        (FULL, 1, "failed"),
        (FULL, 2, "failed"),
        (FULL, tiers.EXIT_NO_TESTS, "failed"),
        (EMPTY, tiers.EXIT_NO_TESTS, "empty"),
        (EMPTY, 0, "failed"),
        (EMPTY, 1, "failed"),
    ],
)
def test_a_tier_is_judged_by_the_exit_code_and_by_what_it_claims(
    tier: tiers.Tier, code: int, result: str
) -> None:
    assert tiers.judge(tier, code, "3 passed")[0] == result


@pytest.mark.parametrize(("strict", "failed"), [(True, True), (False, False)])
def test_a_skipped_tier_fails_only_in_ci(strict: bool, failed: bool) -> None:
    assert tiers.Outcome("kafka", "skipped", "no java").failed(strict=strict) is failed


def test_a_tier_whose_system_is_missing_is_skipped_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepare() -> None:
        raise Unavailable("no java here; install JDK 17")

    system = types.ModuleType("tests.support.absent")
    system.__dict__["prepare"] = prepare
    monkeypatch.setitem(sys.modules, "tests.support.absent", system)
    outcome = tiers.run(tiers.Tier("kafka", ("absent",)))
    assert (outcome.result, outcome.detail) == ("skipped", "no java here; install JDK 17")
    assert "kafka: skipped: no java here; install JDK 17\n" in capsys.readouterr().out


def test_the_runner_and_the_marks_name_the_same_tiers(pytestconfig: pytest.Config) -> None:
    marks = {line.split(":")[0] for line in pytestconfig.getini("markers")}
    assert {tier.name for tier in tiers.TIERS} <= marks


def test_an_unknown_tier_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "tests.support.tiers", "units"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'units'" in done.stderr


def test_a_failed_tier_keeps_its_logs_and_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "REPO", tmp_path)
    monkeypatch.setattr(tiers, "LOGS", tmp_path / "build" / "logs")
    # In an empty folder no test is found, which is a failure for a tier that does not say it is empty.
    outcome = tiers.run(FULL)
    assert outcome.result == "failed"
    assert outcome.detail.endswith("logs: build/logs/unit")
    assert (tmp_path / "build/logs/unit/all/pytest.log").exists()


def collected(folder: Path, shard: str) -> list[str]:
    """The names of the tests that run with such an argument."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-m",
        "unit",
        shard,
        str(folder),
    ]
    done = subprocess.run(
        [*command, "-p", "tests.support.selection"], cwd=REPO, capture_output=True, text=True, check=False
    )
    return [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_shards_share_the_tests_of_a_tier(tmp_path: Path) -> None:
    tests = [f"def test_{name}(): pass\n" for name in "abcde"]
    marked = "import pytest\n@pytest.mark.process\ndef test_other(): pass\n"
    (tmp_path / "test_them.py").write_text(marked + "".join(tests))
    (tmp_path / "conftest.py").touch()
    halves = [collected(tmp_path, f"--shard={shard}") for shard in ("1/2", "2/2")]
    assert halves == [["test_a", "test_c", "test_e"], ["test_b", "test_d"]]


def test_shards_of_modules_leave_a_module_whole(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}1(): pass\ndef test_{name}2(): pass\n")
    (tmp_path / "conftest.py").touch()
    halves = [collected(tmp_path, f"--shard-of-modules={shard}") for shard in ("1/2", "2/2")]
    assert halves == [["test_a1", "test_a2", "test_c1", "test_c2"], ["test_b1", "test_b2"]]


@pytest.mark.parametrize("by_module", [True, False])
@pytest.mark.parametrize("shard", ["3/2", "0/2", "1", "a/b", ""])
def test_a_shard_that_is_none_is_refused(shard: str, by_module: bool) -> None:
    with pytest.raises(pytest.UsageError, match="give the part and how many there are"):
        Shard(shard, by_module=by_module)


def test_what_measures_time_runs_after_all_others() -> None:
    tier = tiers.Tier("kafka", shards=2, has_alone=True)
    assert [[(part.marks, *part.arguments) for part in group] for group in tiers.parts(tier)] == [
        [("kafka and not alone", f"--shard-of-modules={number}/2") for number in (1, 2)],
        [("kafka and alone",)],
    ]


@pytest.mark.parametrize("tier", [tiers.Tier("spark"), tiers.Tier("simulation", shards=2, by_module=False)])
def test_a_tier_without_such_tests_leaves_none_out_for_its_mark(tier: tiers.Tier) -> None:
    (beside,) = tiers.parts(tier)
    assert {part.marks for part in beside} == {tier.name}
    assert len(beside) == tier.shards


def test_a_tier_fails_when_one_of_its_parts_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"1-of-2": 0, "2-of-2": -9, "alone": 0}
    monkeypatch.setattr(tiers, "pytest_part", lambda part, logs: (codes[part.name], f"part {part.name}"))
    tier = tiers.Tier("kafka", shards=2, has_alone=True)
    assert tiers.pytest(tier, tmp_path) == (-9, "part 1-of-2; part 2-of-2; part alone")
