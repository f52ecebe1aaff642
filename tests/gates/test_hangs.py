"""A test that outlives its time limit ends its process, and its stack is shown."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import REPO

PROLOGUE = """
import atexit
import contextlib
import threading

import pytest

"""
IGNORES_ITS_LIMIT = """
@pytest.mark.timeout(1)
def test_hangs():
    while True:
        with contextlib.suppress(BaseException):
            threading.Event().wait()
"""
ENDS_LATE = """
def wait_at_exit():
    threading.Event().wait()

@pytest.mark.timeout(60)
def test_passes():
    atexit.register(wait_at_exit)
"""


@pytest.mark.parametrize(
    ("test", "function"), [(IGNORES_ITS_LIMIT, "test_hangs"), (ENDS_LATE, "wait_at_exit")]
)
def test_a_process_that_hangs_ends_and_says_where(tmp_path: Path, test: str, function: str) -> None:
    (tmp_path / "conftest.py").touch()
    (tmp_path / "test_it.py").write_text(PROLOGUE + test)
    options = ["-p", "tests.support.hangs", "-o", "hang_grace=1", "-o", "timeout=1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert f"in {function}" in done.stderr
