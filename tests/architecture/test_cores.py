"""The cores of the design are under the import contract, and touch no IO through a builtin either."""

import ast
import tomllib
from pathlib import Path

from tests.support.tree import REPO

# Every core that the design names. One joins the contract in pyproject.toml with its first file.
CORES = (
    "rota.consumer.core",
    "rota.handlers.lanes",
    "rota_coordinator.core",
    "rota_sidecar.core",
    "rota_operator.spec",
    "rota_operator.plan",
    "rota_operator.reconcile",
    "rota_operator.leadership",
    "rota_service.oauth_tokens",
    "rota_service.pod_tokens",
    "rota_operator.certificates.rotation",
    "rota_operator.status",
    "rota_operator.replicas",
    "rota_operator.resets",
    "rota_operator.overview",
    "rota_operator.autoscaling",
    "rota_spark.core",
)
IO_BUILTINS = {"breakpoint", "input", "open", "print"}


def files_of(core: str) -> list[Path]:
    """A core is a package, or a module."""
    folder = f"*/src/{core.replace('.', '/')}"
    return [*REPO.glob(f"{folder}/**/*.py"), *REPO.glob(f"{folder}.py")]


def existing() -> list[str]:
    return [core for core in CORES if files_of(core)]


def test_every_core_is_under_the_import_contract() -> None:
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = next(contract["source_modules"] for contract in contracts if contract["id"] == "cores")
    assert sorted(held) == sorted(existing()), "name every core in pyproject.toml, contract 'cores'"


def test_cores_call_no_builtin_that_does_io() -> None:
    offenders = [
        f"{path.relative_to(REPO)}:{node.lineno} {node.func.id}: return a value and let the shell do it"
        for core in existing()
        for path in files_of(core)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IO_BUILTINS
    ]
    assert offenders == []
