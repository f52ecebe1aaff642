"""
The process that runs kubectl's commands for a cluster: `kube kubectl-server`.

Started by `Kubectl`. The start of kubectl costs several times as much as what a short command does.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import Process, current_owner

COMMANDS_MAX = 100


class Result(NamedTuple):
    """Result of a command."""

    code: int
    output: str
    error: str


class KubectlServer:
    """
    The process that runs commands: a line with the command to it, then a line with the result from it.

    It is replaced after COMMANDS_MAX commands, because kubectl's library keeps some memory of each.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._command = command
        self._environment = environment
        self._log = log
        self._owner = current_owner()
        self._commands = 0
        self._start()

    def run(self, arguments: Sequence[str], input: str | None) -> Result:
        """Run a command. Raises ProcessFailed when the process has ended."""
        if self._commands == COMMANDS_MAX:
            self.stop()
            self._start()
        # One that is interrupted has left its result to be read by the next.
        commands, self._commands = self._commands, COMMANDS_MAX
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        line = json.dumps({"arguments": arguments, "input": input or ""})
        # A process that has ended gives no result.
        with suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n".encode())
            self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            self._child.wait()
            self._process.check_running()
        self._commands = commands + 1
        return Result(**json.loads(answer))

    def stop(self) -> None:
        """Kill it."""
        self._process.end()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def _start(self) -> None:
        with self._log.open("ab") as errors:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment,
                # Ctrl-C is for the tests, which stop it.
                start_new_session=True,
            )
        self._process = Process("kubectl-server", self._child, self._log, self._owner)
        self._commands = 0
