"""The tier runner: what counts as passed, what as skipped, and what it says."""

import re
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import tiers
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


def test_what_failed_is_said_again_after_all_tiers(tmp_path: Path) -> None:
    (tmp_path / "1-of-2").mkdir()
    (tmp_path / "1-of-2" / "pytest.log").write_text(
        "....\n___ test_it ___\n>   assert a\nE   assert 1 == 2\n| app: it runs\n12.0s call test_it\nFAILED test_it - assert 1 == 2\n"
    )
    assert tiers.reasons(tmp_path) == [
        "___ test_it ___",
        "E   assert 1 == 2",
        "| app: it runs",
        "FAILED test_it - assert 1 == 2",
    ]


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


def command(folder: Path, *arguments: str) -> list[str]:
    """pytest over the tests of a folder, with such arguments."""
    return [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.selection",
        "-m",
        "unit",
        *arguments,
        str(folder),
    ]


# Whoever comes first waits for the other: each process has something to run.
MEETING = """
import os, pathlib, time

def meet():
    there = pathlib.Path({meeting!r})
    (there / str(os.getpid())).touch()
    until = time.monotonic() + 60
    while len(list(there.iterdir())) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)

def test_1(): meet()
def test_2(): meet()
def test_3(): meet()
"""


def run_by_two(tmp_path: Path, share: str, modules: str) -> list[list[tuple[str, str]]]:
    """The module and the number of each test that ran in each of two processes."""
    tests, begun, meeting = tmp_path / "tests", tmp_path / "begun", tmp_path / "meeting"
    for folder in (tests, begun, meeting):
        folder.mkdir()
    (tests / "conftest.py").touch()
    for name in modules:
        (tests / f"test_{name}.py").write_text(MEETING.format(meeting=str(meeting)))
    sharing = command(tests, "-v", f"{share}={begun}")

    def run(_: int) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(sharing, cwd=REPO, capture_output=True, text=True, check=False, timeout=120)

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(run, range(2)))
    assert [done.returncode for done in runs] == [0, 0]
    outputs = [done.stdout for done in runs]
    return [re.findall(r"test_(\w)\.py::test_(\d) PASSED", output) for output in outputs]


def test_each_module_is_run_once_and_as_a_whole_by_whoever_is_free(tmp_path: Path) -> None:
    ran = run_by_two(tmp_path, "--share", "abcde")
    assert all(ran)
    assert sorted(ran[0] + ran[1]) == [(module, test) for module in "abcde" for test in "123"]
    for tests in ran:
        assert tests == [(module, test) for module, _ in tests[::3] for test in "123"]


def test_a_tier_reads_the_modules_with_its_mark_alone(tmp_path: Path) -> None:
    for name, text in (("a", "pytest.mark.kafka"), ("b", ""), ("c", "pytest.mark.spark")):
        (tmp_path / f"test_{name}.py").write_text(text)
    assert tiers.modules(tiers.Tier("kafka"), tmp_path) == [str(tmp_path / "test_a.py")]
    assert tiers.modules(FULL, tmp_path) == []


@pytest.mark.parametrize("mark", ["kafka", "soak"])
def test_a_mark_that_the_module_does_not_show_is_refused(tmp_path: Path, mark: str) -> None:
    (tmp_path / "conftest.py").write_text(f"def pytest_itemcollected(item): item.add_marker({mark!r})\n")
    (tmp_path / "test_it.py").write_text("def test_it(): ...\n")
    done = subprocess.run(command(tmp_path), cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"write pytest.mark.{mark} in its module" in done.stderr


def test_what_may_take_longest_is_begun_first(tmp_path: Path) -> None:
    """By its marks, so that no process is left alone with it at the end."""
    tests, begun = tmp_path / "tests", tmp_path / "begun"
    for folder in (tests, begun):
        folder.mkdir()
    (tests / "conftest.py").touch()
    test = "import pytest\n\n@pytest.mark.timeout({})\ndef test_1(): ...\n"
    for name, limit_s in (("a", 10), ("b", 300), ("c", 20)):
        (tests / f"test_{name}.py").write_text(test.format(limit_s))
    (tests / "test_d.py").write_text("def test_1(): ...\n")
    done = subprocess.run(
        command(tests, "-v", f"--share={begun}"), cwd=REPO, capture_output=True, text=True, check=False
    )
    assert re.findall(r"test_(\w)\.py::test_\d PASSED", done.stdout) == ["b", "c", "a", "d"]


def test_tests_that_share_nothing_are_taken_one_by_one(tmp_path: Path) -> None:
    ran = run_by_two(tmp_path, "--share-tests", "a")
    assert all(ran)
    assert sorted(ran[0] + ran[1]) == [("a", test) for test in "123"]


def test_a_failure_among_shared_modules_fails_the_process_that_met_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): assert False\n")
    (tmp_path / "conftest.py").touch()
    begun = tmp_path / "begun"
    codes = [
        subprocess.run(
            command(tmp_path, f"--share={begun}"), cwd=REPO, capture_output=True, check=False
        ).returncode
        for _ in range(2)
    ]
    assert codes == [pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK]


def test_a_module_that_cannot_be_read_fails_every_process(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "conftest.py").touch()
    done = subprocess.run(
        command(tmp_path, f"--share={tmp_path}"), cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert "nothing_of_that_name" in done.stdout


def test_what_is_for_soaks_only_runs_in_its_suite_alone(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import pytest\n"
        "@pytest.mark.soak('one')\ndef test_always(): pass\n"
        "@pytest.mark.soak('one', only=True)\ndef test_long(): pass\n"
    )
    expected = {(): "1 passed", ("--soak", "one"): "2 passed", ("--soak", "two"): "2 deselected"}
    for flags, outcome in expected.items():
        done = subprocess.run(
            command(tmp_path, *flags), cwd=REPO, capture_output=True, text=True, timeout=120
        )
        assert outcome in done.stdout


def test_what_measures_speed_runs_last(tmp_path: Path) -> None:
    tier = tiers.Tier("kafka", processes=3, has_alone=True)
    assert [[(part.marks, *part.arguments) for part in group] for group in tiers.parts(tier, tmp_path)] == [
        [("kafka and not alone", f"--share={tmp_path}")] * 3,
        [("kafka and alone",)],
    ]


# Each test waits until so many processes run one of its kind.
KINDS = """
import os, pathlib, time
import pytest

folder = pathlib.Path({folder!r})

def say(what):
    with (folder / "said").open("a") as said:
        said.write(f"{{what}} {{os.getpid()}}\\n")

def meet(kind, count):
    say(f"begin-{{kind}}")
    until = time.monotonic() + 60
    while (folder / "said").read_text().count(f"begin-{{kind}}") < count:
        assert time.monotonic() < until
        time.sleep(0.01)
    say(f"end-{{kind}}")
"""
# It lives as long as its process.
SYSTEM = """
@pytest.fixture(scope="session", autouse=True)
def system():
    say("start")
    yield
    say("stop")
"""
OTHER = "def test_other(): meet('other', 3)\n"
PAIRED = """
@pytest.mark.paired
def test_paired(): meet("paired", 2)
"""


def test_what_is_timed_runs_two_at_a_time_after_all_others_in_what_their_processes_have_started(
    tmp_path: Path,
) -> None:
    tests, begun = tmp_path / "tests", tmp_path / "begun"
    tests.mkdir()
    preamble = KINDS.format(folder=str(tmp_path))
    (tests / "conftest.py").write_text(f"{preamble}\n{SYSTEM}")
    # A process takes a module while it runs another one; the first module has tests of both kinds.
    for name in "abcdef":
        (tests / f"test_{name}.py").write_text(f"{preamble}\n{OTHER}{PAIRED * (name == 'a')}")
    for name in "gh":
        (tests / f"test_{name}.py").write_text(f"{preamble}\n{PAIRED}")
    with ThreadPoolExecutor(3) as pool:
        sharing = command(tests, f"--share={begun}")
        runs = [
            pool.submit(subprocess.run, sharing, cwd=REPO, capture_output=True, text=True, timeout=120)
            for _ in range(3)
        ]
    assert [run.result().returncode for run in runs] == [0, 0, 0], [run.result().stdout for run in runs]
    said = [line.split() for line in (tmp_path / "said").read_text().splitlines()]
    kinds = [what for what, _ in said]
    assert (kinds.count("end-other"), kinds.count("end-paired")) == (6, 3)
    last_of_others = max(index for index, what in enumerate(kinds) if what == "end-other")
    assert kinds.index("begin-paired") > last_of_others
    pair = {pid for what, pid in said if what == "begin-paired"}
    assert len(pair) == 2
    for pid in pair:
        own = [what for what, of in said if of == pid]
        assert (own[0], own[-1], own.count("start")) == ("start", "stop", 1)


@pytest.mark.parametrize(
    "tier", [tiers.Tier("spark"), tiers.Tier("simulation", processes=2, by_module=False)]
)
def test_a_tier_without_such_tests_leaves_none_out_for_its_mark(tier: tiers.Tier, tmp_path: Path) -> None:
    (beside,) = tiers.parts(tier, tmp_path)
    assert {part.marks for part in beside} == {tier.name}
    assert len(beside) == tier.processes


def test_a_tier_fails_when_one_of_its_parts_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"1-of-2": 0, "2-of-2": -9, "alone": 0}
    monkeypatch.setattr(
        tiers, "pytest_part", lambda part, chosen, logs: (codes[part.name], f"part {part.name}")
    )
    tier = tiers.Tier("kafka", processes=2, has_alone=True)
    assert tiers.pytest(tier, tmp_path) == (-9, "part 1-of-2; part 2-of-2; part alone")
