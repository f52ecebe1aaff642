"""Processes that a test starts end with it, also when the test fails before it has ended them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import REPO

pytestmark = pytest.mark.process

WITHIN_S = 60
CAREFREE = """
import gc
import os
from pathlib import Path

import pytest

from tests.support.processes import Process, current_owner

FOLDER = Path({folder!r})


def start(name, **owner):
    process = Process.start(name, ["sleep", "600"], log=FOLDER / f"{{name}}.log", **owner)
    (FOLDER / name).write_text(str(process.pid))
    return process


def runs(name):
    return Path("/proc", (FOLDER / name).read_text()).exists()


@pytest.fixture(scope="module")
def shared():
    start("shared")
    return current_owner()


@pytest.fixture
def own():
    start("own")


def test_fails_half_way(shared, own):
    start("left")
    start("restarted", owner=shared)
    assert False


def test_comes_next():
    gc.collect()
    assert [runs(name) for name in ("shared", "restarted", "own", "left")] == [True, True, False, False]
"""


def test_a_test_that_fails_half_way_leaves_no_process_and_no_warning(tmp_path: Path) -> None:
    (tmp_path / "test_carefree.py").write_text(CAREFREE.format(folder=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.ownership", "-W", "error", str(tmp_path)],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "::test_fails_half_way" in done.stdout.rpartition("FAILED")[2]
    assert "Warning" not in done.stdout + done.stderr
    pids = [(tmp_path / name).read_text() for name in ("shared", "restarted")]
    assert not any(Path("/proc", pid).exists() for pid in pids)
