"""
A machine of a cluster: a set of namespaces around a first process.

Called by the control plane and the nodes, which run in one each. Ending the first process ends the machine as
pulling its plug would: the kernel kills everything in it and drops its mounts, links and rules. The first
process itself ends with the process that booted it, so a killed test run takes its machines along.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support import cache
from tests.support.cluster.machinery import Machinery
from tests.support.cluster.process_identity import Identity
from tests.support.processes import Process, ProcessFailed, current_owner

BOOT = Path(__file__).with_name("boot.sh")
NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")
"""What a machine has for itself, in the words of unshare and nsenter."""
BOOT_WITHIN_S = 60
OFF_WITHIN_S = 60
# Go programs on two cores: an API server that is short of memory collects garbage for a quarter of its start.
LESS_COLLECTING = {"GOGC": "400"}
FIRST_PROCESS = "first-process"
"""In a machine's folder: which process to wait for when the machine's owner was killed."""


class Machine:
    """One machine. What its parts write below /var survives until its folder goes, through any number of boots."""

    def __init__(self, name: str, folder: Path, logs: Path, machinery: Machinery) -> None:
        self.name = name
        self.folder = folder
        self.logs = logs / name
        self._machinery = machinery
        self._first: Identity | None = None
        self._processes: list[Process] = []
        self._owner = current_owner()

    @property
    def running(self) -> bool:
        return self._first is not None

    @property
    def pid(self) -> int:
        """Of the first process, as this machine's host sees it."""
        if self._first is None:
            raise RuntimeError(f"machine {self.name} is off; start it first")
        return self._first.pid

    def boot(self) -> None:
        """Switch on; returns when parts can be started."""
        var, reaper = self.folder / "var", self._machinery.reaper
        var.mkdir(parents=True, exist_ok=True)
        boot: list[str | Path] = ["sh", "-e", BOOT, self.name, cache.root(), var, reaper]
        apart = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "--"]
        holder = self._start("boot", [*apart, *boot])
        holder.wait_until(lambda: self._booted(holder.pid) is not None, within_s=BOOT_WITHIN_S)
        self._first = self._booted(holder.pid)
        assert self._first is not None
        self._first.write(self.folder / FIRST_PROCESS)

    def start(self, part: str, command: Sequence[str | Path]) -> Process:
        """Start a part of the cluster in here; it ends with the machine."""
        return self._start(part, [*self._enter(*NAMESPACES), *command])

    def run(self, command: Sequence[str | Path]) -> str:
        """Run a command in here to its end; gives its output."""
        return self._run(NAMESPACES, command)

    def run_in_network(self, command: Sequence[str | Path]) -> str:
        """The same, but of this machine it sees the network only: files and process ids are the host's."""
        return self._run(["--net"], command)

    def enter_network(self) -> tuple[str, ...]:
        """To be put before a command that shall see this machine's network and the host's everything else."""
        return tuple(self._enter("--net"))

    def power_off(self) -> None:
        """At once, with no chance for anything in here to say goodbye; returns when all of it is gone."""
        if self._first is not None:
            self._first.end(signal.SIGKILL)
            self._processes[0].wait(within_s=OFF_WITHIN_S)
        for process in self._processes:
            process.kill()  # the host's end of each part; most have seen the part go and ended themselves
        self._processes.clear()
        self._first = None
        (self.folder / FIRST_PROCESS).unlink(missing_ok=True)

    def _start(self, part: str, command: Sequence[str | Path]) -> Process:
        log = self.logs / f"{part}.log"
        process = Process.start(
            f"{self.name}/{part}", command, log=log, env=self._environment(), owner=self._owner
        )
        self._processes.append(process)
        return process

    def _run(self, namespaces: Sequence[str], command: Sequence[str | Path]) -> str:
        inside = [*self._enter(*namespaces), *command]
        done = subprocess.run(
            inside, capture_output=True, text=True, env={**os.environ, **self._environment()}
        )
        if done.returncode != 0:
            command_line = " ".join(map(str, command))
            raise ProcessFailed(
                f"'{command_line}' on {self.name} ended with code {done.returncode}: {done.stderr}"
            )
        return done.stdout

    def _booted(self, holder: int) -> Identity | None:
        """The holder's only child, once it has become the reaper."""
        children = Path(f"/proc/{holder}/task/{holder}/children")
        try:
            child = Identity.of(int(children.read_text().split()[0]))
            is_reaper = Path(f"/proc/{child.pid}/exe").samefile(self._machinery.reaper)
        except (OSError, IndexError):
            return None  # not forked yet
        return child if is_reaper else None

    def _enter(self, *namespaces: str) -> list[str]:
        return ["nsenter", "--target", str(self.pid), *namespaces, "--"]

    def _environment(self) -> dict[str, str]:
        return {**self._machinery.debian.environment(), **LESS_COLLECTING}
