"""
A command for people (`python -m tests.support.… up`) as a test sees it from outside.

The tests of every system ask the same of its command: it says when it is ready, a signal ends it, and even
SIGKILL leaves no process behind.
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.processes import Process
from tests.support.workdir import LOCK

REPO = Path(__file__).parents[2]
READY_S = 90
GONE_S = 20


class Command:
    """A command that said it is ready, and the servers it keeps."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._servers: dict[int, int] = {}
        for pid in _below(process.pid):
            # PostgreSQL has some that come and go.
            with suppress(ProcessLookupError):
                self._servers[pid] = os.pidfd_open(pid)

    @property
    def said(self) -> str:
        """Return the output of the command."""
        return self._process.log.read_text()

    @property
    def servers(self) -> list[int]:
        """The processes that it started, by their ids."""
        return list(self._servers)

    def folder(self) -> Path:
        """The folder of its system: the one whose lock it holds."""
        opened = (path.readlink() for path in Path(f"/proc/{self._process.pid}/fd").iterdir())
        (lock,) = (path for path in opened if path.name == LOCK)
        return lock.parent

    def end(self, how: signal.Signals) -> int:
        """Send it the signal, it alone; gives its exit code, negative when the signal killed it."""
        os.kill(self._process.pid, how)
        return self._process.wait(within_s=GONE_S)

    def left_behind(self) -> list[int]:
        """The servers that still run some time after the command has ended."""
        return [pid for pid, watch in self._servers.items() if not select.select([watch], [], [], GONE_S)[0]]

    def close(self) -> None:
        """Let go of what its servers are watched with."""
        for watch in self._servers.values():
            os.close(watch)


@contextmanager
def started(system: str, *arguments: str, log: Path) -> Iterator[Command]:
    """`python -m tests.support.<system> up <arguments>`, once it said that it is ready."""
    program = [sys.executable, "-m", f"tests.support.{system}", "up", *arguments]
    with ExitStack() as cleanup:
        process = Process.start(f"{system} up", program, log=log, cwd=REPO)
        cleanup.callback(process.kill)
        process.wait_until(lambda: "is ready" in log.read_text(), within_s=READY_S)
        command = Command(process)
        cleanup.callback(command.close)
        yield command


def _below(root: int) -> set[int]:
    """The processes that `root` started, and those that these started."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended while we looked
            parents[int(entry.name)] = _parent(entry)
    found: set[int] = set()
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found |= level
    return found


def _parent(entry: Path) -> int:
    # "pid (name) state parent …", and a name may hold anything.
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
