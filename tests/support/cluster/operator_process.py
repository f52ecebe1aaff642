"""
The operator as a process of this machine, outside of the cluster that it works on: for tests that need no running pods.

Started by fixtures and tests of `tests/api_server` and `tests/cluster`. It leads without a Lease, so it is the only operator of its namespaces.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import Process, current_owner
from tests.support.workdir import logs

START_S = STOP_S = 120
# Addresses and images stand in the objects that it writes: the same in each life.
FLEET_ADDRESS = "rota-operator.rota:7083"
SIDECAR_IMAGE = "rota-sidecar:of-this-test"
READY = re.compile(r"reconciling \d+ ConsumerGroups")
FLEET = re.compile(r"fleet on (\S+)")
FAULT = "internal error in Rota"


class OperatorProcess:
    """One operator; `start` again after `kill` is the same one after a crash."""

    def __init__(self, folder: Path, kubeconfig: Path, *flags: str) -> None:
        self._kubeconfig = kubeconfig
        self._flags: Sequence[str] = flags
        self._logs = logs(folder)
        self._starts = 0
        self._process: Process | None = None
        self._owner = current_owner()

    def start(self) -> None:
        """Start it, and wait until it watches."""
        self._starts += 1
        command = [
            sys.executable,
            "-m",
            "rota_operator",
            "cluster",
            f"--kubeconfig={self._kubeconfig}",
            "--lease-name=",
            "--http-listen=127.0.0.1:0",
            "--fleet-listen=127.0.0.1:0",
            "--page-listen=127.0.0.1:0",
            f"--fleet-address={FLEET_ADDRESS}",
            f"--sidecar-image={SIDECAR_IMAGE}",
            "--insecure",
            "--log-format=text",
            *self._flags,
        ]
        log = self._logs / f"operator-{self._starts}.log"
        self._process = Process.start("operator", command, log=log, owner=self._owner)
        self._process.wait_until(lambda: READY.search(log.read_text()) is not None, within_s=START_S)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.process.kill()

    def stop(self) -> None:
        """SIGTERM. Raises AssertionError if it did not end in order, or has met a bug of its own."""
        self.check()
        self.process.stop(within_s=STOP_S)
        assert self.process.exit_code == 0, self.process.tail()

    def check(self) -> None:
        """Raise AssertionError if it has met a bug of its own, ProcessFailed if it has ended."""
        self.process.check_running()
        assert FAULT not in self.process.log.read_text(), self.process.tail()

    @property
    def fleet(self) -> str:
        """Address at which this life serves Fleet."""
        found = FLEET.search(self.process.log.read_text())
        assert found is not None
        return found[1]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> Process:
        assert self._process is not None, "it has not been started"
        return self._process
