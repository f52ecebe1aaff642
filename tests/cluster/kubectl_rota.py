"""`kubectl rota` in the process of the tests, against the API server of a cluster."""

from typing import NamedTuple

import pytest

from rota_cli.kubectl_program import kubectl_program
from rota_cli.process import run_program
from tests.cli.command import CommandResult
from tests.support.cluster import Cluster


class KubectlRota(NamedTuple):
    """Runs commands for one namespace."""

    cluster: Cluster
    namespace: str
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> CommandResult:
        """Run one command to its end."""
        self.monkeypatch.setenv("KUBECONFIG", str(self.cluster.kubeconfig))
        self.monkeypatch.setattr("sys.argv", ["kubectl-rota", *arguments, "--namespace", self.namespace])
        code = run_program(kubectl_program, "kubectl rota")
        said = self.capsys.readouterr()
        return CommandResult(code, said.out, said.err)
