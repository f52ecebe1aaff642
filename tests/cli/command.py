"""`rota` as people run it: a process, what it says, and the code that it ends with."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WITHIN_S = 60


@dataclass(frozen=True)
class CommandResult:
    """Outcome of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:  # noqa: ANN401  whatever JSON holds
        """Parsed output of `-o json`."""
        assert self.code == 0, self
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[str]:
        """Lines of output of a command that succeeded."""
        assert self.code == 0, self
        return self.stdout.splitlines()

    @property
    def error(self) -> str:
        """The one sentence of a command that did not."""
        assert (self.code != 0, self.stdout) == (True, ""), self
        message, end, rest = self.stderr.partition("\n")
        assert (end, rest) == ("\n", ""), self
        assert message.startswith("rota: "), self
        return message.removeprefix("rota: ")


@dataclass(frozen=True)
class Rota:
    """The command line, beside a server."""

    servers: str
    folder: Path

    def __call__(
        self, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Run one command to its end; `stdin` is its standard input."""
        done = subprocess.run(
            [sys.executable, "-m", "rota_cli", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment(environment),
            timeout=WITHIN_S,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """For a command that is started otherwise."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        return {**ours, "ROTA_BOOTSTRAP_SERVERS": self.servers, "TERM": "dumb", **(more or {})}
