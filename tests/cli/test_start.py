"""`rota --help` and `rota version` answer at once: what is slow to load is loaded by those who need it."""

import pytest

from tests.cli.command import Rota
from tests.support.loaded_modules import loaded_modules

SLOW = ("asyncio", "confluent_kafka", "grpc", "google.protobuf", "kubernetes", "rich", "urllib3", "yaml")
# `kubectl rota`, with the class that its commands use once they have a kubeconfig.
CLIENT = "import rota_cli.kubectl, rota_cli.clusters.kubernetes.api"

pytestmark = pytest.mark.process


@pytest.mark.parametrize("entry_point", ["__main__", "kubectl"])
def test_clients_of_servers_are_not_loaded_before_one_is_asked(entry_point: str) -> None:
    loaded = loaded_modules(f"import rota_cli.{entry_point}")
    assert "typer" in loaded
    assert loaded.isdisjoint(SLOW), loaded.intersection(SLOW)


def test_kubectl_rota_loads_the_kubernetes_client_and_none_of_other_servers() -> None:
    loaded = loaded_modules(CLIENT)
    assert "kubernetes" in loaded
    # The client has a module for each kind of Kubernetes; `Api` reads plain JSON.
    others = {
        "asyncio",
        "confluent_kafka",
        "google.protobuf",
        "grpc",
        "kubernetes.client.models.v1_pod",
        "rich",
    }
    assert loaded.isdisjoint(others), loaded.intersection(others)


def test_help_names_every_command(rota: Rota) -> None:
    said = rota("--help").stdout
    for command in (
        "topics",
        "groups",
        "produce",
        "consume",
        "doctor",
        "version",
        "up",
        "coordinator",
        "sidecar",
    ):
        assert f"\n  {command} " in said


def test_the_shell_completes_commands(rota: Rota) -> None:
    asked = {"_ROTA_COMPLETE": "complete_bash", "COMP_WORDS": "rota groups re", "COMP_CWORD": "2"}
    assert rota(environment=asked).stdout.split() == ["reset"]


def test_versions_are_for_programs_too(rota: Rota) -> None:
    found = {each["part"]: each["version"] for each in rota("version", "-o", "json").data}
    assert found["rota-cli"] == found["rota"]
