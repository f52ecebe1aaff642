"""Each command of the operator loads what it needs: `rota up` starts without the clients of Kubernetes."""

import subprocess
import sys

import pytest

# kopf loads all of them.
OF_A_CLUSTER = {"aiohttp", "kopf", "kubernetes"}
LOADED = "import sys\n{}\nprint(*sorted(sys.modules))"
FLAGS = "import rota_operator.__main__\nsys.argv[1:] = ['--help']\ntry:\n  rota_operator.__main__.main()\nexcept SystemExit:\n  pass"
LOCAL = "import rota_operator.local.demo, rota_operator.local.runner"

pytestmark = pytest.mark.process


def modules(program: str) -> set[str]:
    printed = subprocess.check_output([sys.executable, "-c", LOADED.format(program)], text=True)
    return set(printed.splitlines()[-1].split())


@pytest.mark.parametrize("program", [FLAGS, LOCAL], ids=["flags", "local"])
def test_clients_of_kubernetes_are_loaded_by_the_commands_of_a_cluster_only(program: str) -> None:
    loaded = modules(program)
    assert "rota_operator" in loaded
    assert loaded.isdisjoint(OF_A_CLUSTER), loaded & OF_A_CLUSTER
