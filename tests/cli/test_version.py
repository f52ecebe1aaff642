"""Every part says which version it is, and those that can do nothing yet say so."""

import subprocess
import sys
from importlib.metadata import version

import pytest

PART_COMMANDS = {
    "rota_coordinator": "rota-coordinator",
    "rota_operator": "rota-operator",
    "rota_sidecar": "rota-sidecar",
    "rota_spark": "rota-spark",
}


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(("module", "name"), PART_COMMANDS.items())
def test_a_part_says_its_version(module: str, name: str) -> None:
    done = run(module, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name} {version(name)}\n", "")


def test_a_part_without_a_program_says_how_it_is_used() -> None:
    done = run("rota_spark")
    assert done.returncode == 2
    assert done.stderr.endswith("submit an application that imports rota_spark, see docs/guide/spark.md\n")


def test_rota_version_lists_every_part() -> None:
    done = run("rota_cli", "version")
    assert done.returncode == 0
    listed = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
    names = {*PART_COMMANDS.values(), "rota", "rota-cli", "rota-proto", "rota-service"}
    assert listed == {name: version(name) for name in names}
