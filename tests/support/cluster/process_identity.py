"""
Identity of a process: the kernel reuses process ids, so an id alone does not identify one.

Written by the owner of a process for others that may have to wait for it, or to end it, after the owner died.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

# The kernel writes a dead container's file system to disk before its process is gone: long, on a busy disk.
GONE_WITHIN_S = 60
POLL_S = 0.02


class StillThere(Exception):
    """A process did not go away."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, told apart from a later one with the same id by when it started."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Identity":
        """Raises FileNotFoundError when there is none."""
        return cls(pid, _stat(pid)[STARTED])

    @classmethod
    def read(cls, file: Path) -> "Identity":
        pid, started = file.read_text().split()
        return cls(int(pid), started)

    def write(self, file: Path) -> None:
        file.write_text(f"{self.pid} {self.started}\n")

    def alive(self) -> bool:
        try:
            fields = _stat(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return fields[STARTED] == self.started and fields[STATE] != "Z"

    def end(self, how: signal.Signals, *, within_s: float = GONE_WITHIN_S) -> None:
        """Signal it if it is still there, and return when it is gone."""
        if self.alive():
            os.kill(self.pid, how)
        self.wait_until_gone(within_s=within_s)

    def wait_until_gone(self, *, within_s: float = GONE_WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        while self.alive():
            if time.monotonic() > deadline:
                raise StillThere(f"process {self.pid} is still there after {within_s:.0f} s")
            time.sleep(POLL_S)


# Fields of /proc/PID/stat, counted from behind the name, which may hold anything.
STATE = 0
STARTED = 19


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
