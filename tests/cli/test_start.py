"""`rota --help` and `rota version` answer at once: what is slow to load is loaded by those who need it."""

import subprocess
import sys

import pytest

from tests.cli.command import Rota

SLOW = ("asyncio", "confluent_kafka", "grpc", "google.protobuf", "rich", "yaml")
LOADED = "import sys, rota_cli.__main__; print(*sorted(sys.modules))"

pytestmark = pytest.mark.process


def test_clients_of_servers_are_not_loaded_before_one_is_asked() -> None:
    loaded = set(subprocess.check_output([sys.executable, "-c", LOADED], text=True).split())
    assert "typer" in loaded
    assert loaded.isdisjoint(SLOW), loaded.intersection(SLOW)


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
