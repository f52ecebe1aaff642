"""Processes that copy, as the tests of the copy job see them: by what they say."""

import os
import signal
from pathlib import Path

from tests.log.copies import PARTITIONS
from tests.support.processes import Process

WITHIN_S = 120
KILLED = -9


class Copier:
    """A copier, as the test sees it."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self._name = name
        self._command = command
        self._log = log
        self.process = self._start()

    def _start(self) -> Process:
        return Process.start(self._name, self._command, log=self._log)

    def events(self, kind: str) -> list[str]:
        """What it has said of one kind, in all its lives."""
        lines = self._log.read_text().splitlines()
        return [line.removeprefix(kind).strip() for line in lines if line.startswith(kind)]

    def wait_for(self, kind: str, count: int = 1) -> str:
        """The event of this kind that comes so late."""
        self.process.wait_until(lambda: len(self.events(kind)) >= count, within_s=WITHIN_S)
        return self.events(kind)[count - 1]

    def wait_until_owns_all(self) -> None:
        def owns_all() -> bool:
            return any(int(line.split()[1]) == PARTITIONS for line in self.events("assigned"))

        self.process.wait_until(owns_all, within_s=WITHIN_S)

    def wait_until_copied(self, position: int) -> None:
        """Its offsets together are so far."""
        self.process.wait_until(
            lambda: any(int(each) >= position for each in self.events("copied")), within_s=WITHIN_S
        )

    def wait_until_stopped(self) -> None:
        self.wait_for("stopping")
        self.process.wait_until(self._is_stopped, within_s=WITHIN_S)

    def _is_stopped(self) -> bool:
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def go_on(self) -> None:
        """If it has stopped."""
        if self.process.exit_code is None:
            os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """In the midst of its work; another one begins where it was."""
        self.process.kill()
        assert self.process.exit_code == KILLED, "it had ended before: raise the number of records"
        self.process = self._start()

    def finish(self) -> None:
        """Wait until it has found that all is done."""
        assert self.process.wait(within_s=WITHIN_S) == 0, self.process.tail()
