"""A supervised process ends on SIGTERM and when its holder is gone, and with all processes that it started."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import wait_for

pytestmark = pytest.mark.process

WITHIN_S = 60
READY = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(str(__import__('os').getpid()))\n"
IDLE = READY + "import signal; signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + IDLE
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {IDLE!r}, sys.argv[1]])"
Supervisor = subprocess.Popen[bytes]


@contextmanager
def supervised(code: str, folder: Path, *, grace_s: float = 60) -> Iterator[tuple[Supervisor, int]]:
    """Run a process under a supervisor; yields the supervisor and the process id once it runs."""
    ready = folder / "ready"
    command = [
        sys.executable,
        "-m",
        "rota_operator.local.supervisor",
        str(grace_s),
        str(folder / "pid"),
        "022",
        sys.executable,
        "-c",
        code,
        str(ready),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as held:
        try:
            wait_for("the process", lambda: ready.exists() and bool(ready.read_text()), within_s=WITHIN_S)
            yield held, int(ready.read_text())
        finally:
            held.send_signal(signal.SIGQUIT)


def is_gone(pid: int) -> Callable[[], bool]:
    def look() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"

    return look


def test_it_ends_on_sigterm(tmp_path: Path) -> None:
    with supervised(IDLE, tmp_path) as (held, pid):
        held.send_signal(signal.SIGTERM)
        assert held.wait(WITHIN_S) == 128 + signal.SIGTERM
        assert is_gone(pid)()


def test_its_id_is_in_a_file_while_it_runs(tmp_path: Path) -> None:
    with supervised(IDLE, tmp_path) as (held, pid):
        file = tmp_path / "pid"
        wait_for("its id", lambda: file.exists() and file.read_text() == f"{pid}\n", within_s=WITHIN_S)
        held.send_signal(signal.SIGTERM)
        held.wait(WITHIN_S)
        assert not file.exists()


def test_its_exit_code_is_its_own(tmp_path: Path) -> None:
    with supervised(READY + "sys.exit(7)", tmp_path) as (held, _):
        assert held.wait(WITHIN_S) == 7


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    with supervised(STUBBORN, tmp_path) as (held, pid):
        held.send_signal(signal.SIGTERM)
        held.send_signal(signal.SIGQUIT)
        assert held.wait(WITHIN_S) == 128 + signal.SIGKILL
        assert is_gone(pid)()


@pytest.mark.parametrize(("code", "grace_s"), [(IDLE, 60), (STUBBORN, 0.1)], ids=["willing", "stubborn"])
def test_it_ends_when_its_holder_is_gone(tmp_path: Path, code: str, grace_s: float) -> None:
    with supervised(code, tmp_path, grace_s=grace_s) as (held, pid):
        assert held.stdin is not None
        held.stdin.close()
        held.wait(WITHIN_S)
        assert is_gone(pid)()


def test_it_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    with supervised(STUBBORN, tmp_path) as (held, pid):
        held.kill()
        held.wait(WITHIN_S)
        wait_for("its end", is_gone(pid), within_s=WITHIN_S)


def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    with supervised(PARENT, tmp_path) as (held, pid):
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        held.wait(WITHIN_S)
        wait_for("its end", is_gone(pid), within_s=WITHIN_S)


def test_a_missing_command_is_reported_with_a_message() -> None:
    command = [sys.executable, "-m", "rota_operator.local.supervisor", "1", "pid", "022", "/no/such/program"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr == (
        "cannot execute /no/such/program (No such file or directory); check the container's command\n"
    )
