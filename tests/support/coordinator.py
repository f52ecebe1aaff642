"""Rota's own coordinator as a process, for tests: started, killed, started again on the same file."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import Process
from tests.support.workdir import logs

START_S = 20
READY = re.compile(r"listening on (\S+)")
# What makes a coordinator answer as fast as the cases expect, and as the reference broker is set up.
QUICK = (
    "--group-min-session-timeout-ms=500",
    "--group-initial-rebalance-delay-ms=0",
    "--rebalance-coalesce-ms=0",
)


class Coordinator:
    """One coordinator and its file; `start` again after `kill` is the same one after a crash."""

    def __init__(self, folder: Path, flags: Sequence[str] = QUICK) -> None:
        self.file = folder / "coordinator.db"
        self.address = ""
        self._logs = logs(folder)
        self._flags = flags
        self._starts = 0
        self._process: Process | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self._starts += 1
        log = self._logs / f"coordinator-{self._starts}.log"
        command = [
            sys.executable,
            "-m",
            "rota_coordinator",
            f"--store=sqlite:{self.file}",
            "--listen=127.0.0.1:0",
            *self._flags,
        ]
        self._process = Process.start("coordinator", command, log=log)
        self._process.wait_until(lambda: READY.search(log.read_text()) is not None, within_s=START_S)
        found = READY.search(log.read_text())
        assert found is not None
        self.address = found.group(1)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self._process is not None
        self._process.kill()

    def stop(self) -> int | None:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.stop()
        return self._process.exit_code
