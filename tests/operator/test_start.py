"""Each command of the operator loads what it needs: `rota up` starts without the clients of Kubernetes."""

import pytest

from tests.support.loaded_modules import loaded_modules

# kopf loads all of them.
OF_A_CLUSTER = {"aiohttp", "kopf", "kubernetes"}
FLAGS = "import rota_operator.__main__\nsys.argv[1:] = ['--help']\ntry:\n  rota_operator.__main__.main()\nexcept SystemExit:\n  pass"
LOCAL = "import rota_operator.local.demo, rota_operator.local.runner"

pytestmark = pytest.mark.process


@pytest.mark.parametrize("program", [FLAGS, LOCAL], ids=["flags", "local"])
def test_clients_of_kubernetes_are_loaded_by_the_commands_of_a_cluster_only(program: str) -> None:
    loaded = loaded_modules(program)
    assert "rota_operator" in loaded
    assert loaded.isdisjoint(OF_A_CLUSTER), loaded & OF_A_CLUSTER


def test_the_job_of_certificates_loads_no_grpc() -> None:
    assert "grpc" not in loaded_modules("import rota_operator.certificates.job")
