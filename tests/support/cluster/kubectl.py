"""
kubectl, as the tests call it: answers come back, refusals are raised.

Made by `Cluster`; works with any kubeconfig. The commands of tests are run by one process, `kube kubectl-server`, because the start
of kubectl costs several times as much as what it does.
"""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.cluster.kubectl_server import KubectlServer, Result
from tests.support.cluster.machine import LESS_COLLECTING


def only_row(table: str) -> dict[str, str]:
    """The only row of kubectl's table, by the names of its columns; a value that is unknown is empty."""
    head, row = table.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", head)]
    return {
        head[start:end].strip(): row[start:end].strip()
        for start, end in zip(starts, [*starts[1:], None], strict=True)
    }


class KubectlFailed(Exception):
    """kubectl refused or failed; the message is what it said."""


class Kubectl:
    """kubectl with a cluster to talk to."""

    def __init__(self, kube: Path, kubeconfig: Path) -> None:
        self._program = kube
        self._server: KubectlServer | None = None
        # Its cache of what the API offers would else go to the user's home.
        self.environment = {
            "KUBECONFIG": str(kubeconfig),
            "KUBECACHEDIR": str(kubeconfig.with_name("kubectl-cache")),
        }

    def start_server(self, log: Path) -> None:
        """Run all further commands in one process, one after the other. The kubeconfig must not change from now on."""
        command = [str(self._program), "kubectl-server"]
        self._server = KubectlServer(command, {**os.environ, **self.environment, **LESS_COLLECTING}, log)

    def stop_server(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def command(self, *arguments: str) -> list[str]:
        """The command line; to be run with `environment`."""
        return [str(self._program), "kubectl", *arguments]

    def run(self, *arguments: str, input: str | None = None) -> str:
        """Run it and return its standard output."""
        run = self._run if self._server is None else self._server.run
        done = run(arguments, input)
        if done.code != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.error.strip()}")
        return done.output

    def apply(self, manifests: Sequence[dict[str, Any]], namespace: str) -> None:
        """Create or change what the manifests say."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.run("apply", "--namespace", namespace, "--filename", "-", input=json.dumps(document))

    def _run(self, arguments: Sequence[str], input: str | None) -> Result:
        done = subprocess.run(
            self.command(*arguments),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
        )
        return Result(done.returncode, done.stdout, done.stderr)
