"""A test that fails shows how its processes are, and what they wrote last."""

import subprocess
import sys
from pathlib import Path

from tests.support.tree import REPO

TEST = """
from tests.support.processes import Process


def start(folder, name, command):
    return Process.start(name, ["sh", "-c", command], log=folder / f"{name}.log")


def test_fails(tmp_path):
    ends = start(tmp_path, "ends", "seq 20; echo the reason; exit 3")
    assert ends.wait(within_s=60) == 3
    waits = start(tmp_path, "waits", "echo ready; sleep 60")
    waits.wait_until(lambda: "ready" in waits.tail(), within_s=60)
    assert False
"""


def test_a_failure_shows_the_last_lines_of_the_tests_processes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").touch()
    (tmp_path / "test_it.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.ownership", str(tmp_path)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("| ")] == [
        "| waits: it runs",
        "| waits: ready",
        "| ends: it ended with code 3",
        *(f"| ends: {number}" for number in range(16, 21)),
        "| ends: the reason",
    ]
