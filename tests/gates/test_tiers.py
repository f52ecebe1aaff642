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
    assert (tmp_path / "build/logs/unit/pytest.log").exists()


def collected(folder: Path, shard: str) -> list[str]:
    """The names of the tests that such a part runs."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-m",
        "unit",
        f"--shard={shard}",
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
    parts = [collected(tmp_path, shard) for shard in ("1/2", "2/2")]
    assert parts == [["test_a", "test_c", "test_e"], ["test_b", "test_d"]]


@pytest.mark.parametrize("shard", ["3/2", "0/2", "1", "a/b", ""])
def test_a_shard_that_is_none_is_refused(shard: str) -> None:
    with pytest.raises(pytest.UsageError, match="give the part and how many there are"):
        Shard(shard)


def test_a_tier_fails_when_one_of_its_shards_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"1/2": 0, "2/2": -9}
    monkeypatch.setattr(tiers, "pytest_shard", lambda tier, shard, logs: (codes[shard], f"part {shard}"))
    assert tiers.pytest(tiers.Tier("simulation", shards=2), tmp_path) == (-9, "part 1/2; part 2/2")
