"""A system in the foreground shuts down the same way, whenever the signal arrives."""

import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import Process

pytestmark = pytest.mark.process

REPO = Path(__file__).parents[2]
TIMEOUT_S = 60
# Says what happens to it. With an argument it takes for ever to start.
SYSTEM = """
import contextlib, signal, sys
from tests.support.processes import run_in_foreground
from tests.support.unavailable import Unavailable

@contextlib.contextmanager
def system():
    print("starting", flush=True)
    try:
        if "slow" in sys.argv:
            signal.pause()
        if "missing" in sys.argv:
            raise Unavailable("it is missing: install it")
        yield "up"
    finally:
        print("cleaned up", flush=True)

run_in_foreground(system(), lambda name: f"{name} is ready")
"""


def start(log: Path, *arguments: str) -> Process:
    return Process.start("system", [sys.executable, "-c", SYSTEM, *arguments], log=log, cwd=REPO)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_a_system_that_is_up(tmp_path: Path, how: signal.Signals) -> None:
    log = tmp_path / "log"
    process = start(log)
    process.wait_until(lambda: "ready" in log.read_text(), within_s=TIMEOUT_S)

    process.stop(first=how)

    assert process.exit_code == 0
    assert log.read_text() == "starting\nup is ready\ncleaned up\n"


def test_signal_ends_a_system_that_is_still_starting(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start(log, "slow")
    process.wait_until(lambda: "starting" in log.read_text(), within_s=TIMEOUT_S)

    process.stop()

    assert process.exit_code == 128 + signal.SIGTERM
    assert log.read_text() == "starting\ncleaned up\n"


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"

    assert start(log, "missing").wait(within_s=TIMEOUT_S) == 1

    assert log.read_text() == "starting\ncleaned up\nit is missing: install it\n"
