"""Every violation that `make check` promises to catch is caught, and the message names the remedy."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import cache
from tests.support.tree import REPO, files

# All checks anew, on a machine that does other work too. A hang is what takes ten times as long as usual.
WITHIN_S = 600
pytestmark = pytest.mark.timeout(2 * WITHIN_S)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, with a git index of its own."""
    copy = tmp_path_factory.mktemp("checkout")
    for path in files():
        target = copy / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    subprocess.run(["git", "add", "--all"], cwd=copy, check=True)
    return copy


def make(checkout: Path, *goals: str) -> "subprocess.CompletedProcess[str]":
    """Run make in the copy, with the tools of the environment that runs this test."""
    environment = Path(sys.executable).parents[1]
    # What make tells its children about itself would make the inner one part of the outer one.
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))
    }
    # Types of libraries need no new look in each copy.
    env["MYPY_CACHE_DIR"] = str(cache.root() / "mypy")
    # No set-up: the environment is there, and newer files in the copy must not make it anew.
    command = ["make", f"VENV={environment}", "--assume-old", f"{environment}/.all", *goals]
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=WITHIN_S)


def import_grpc_in_a_core(checkout: Path) -> None:
    path = checkout / "coordinator/src/rota_coordinator/core/group/__init__.py"
    path.write_text(path.read_text() + "\nimport grpc\n\nCHANNEL = grpc.Channel\n")


def import_argparse_beside_the_config(checkout: Path) -> None:
    path = checkout / "sidecar/src/rota_sidecar/wiring.py"
    path.write_text(path.read_text() + "\nimport argparse\n\nNAMESPACE = argparse.Namespace\n")


def import_another_part(checkout: Path) -> None:
    path = checkout / "sidecar/src/rota_sidecar/__init__.py"
    path.write_text(path.read_text() + "\nimport rota_operator\n\nPLAN = rota_operator\n")


def have_the_command_line_import_a_part(checkout: Path) -> None:
    path = checkout / "cli/src/rota_cli/clusters/clocks.py"
    path.write_text(path.read_text() + "\nimport rota_sidecar\n\nSIDECAR = rota_sidecar\n")


def import_the_command_line(checkout: Path) -> None:
    path = checkout / "spark_apps/src/rota_spark/__init__.py"
    path.write_text(path.read_text() + "\nimport rota_cli\n\nCLI = rota_cli\n")


def edit_a_generated_file(checkout: Path) -> None:
    path = checkout / "proto/src/rota_proto/fleet/v1/fleet_pb2.py"
    path.write_text(path.read_text() + "# edited by hand\n")


def write_a_function_of_80_lines(checkout: Path) -> None:
    path = checkout / "sdk/src/rota/__init__.py"
    body = "".join(f"    total += {line}\n" for line in range(77))
    path.write_text(path.read_text() + f"\n\ndef long() -> int:\n    total = 0\n{body}    return total\n")


def edit_the_definition_of_a_resource(checkout: Path) -> None:
    path = checkout / "crds/consumergroups.yaml"
    path.write_text(path.read_text().replace("maxItems: 100", "maxItems: 101"))


def change_the_meaning_of_a_metric(checkout: Path) -> None:
    path = checkout / "docs/reference/metrics.md"
    path.write_text(path.read_text().replace("Duration of reconciles.", "Number of reconciles."))


def improve_a_figure_of_the_page(checkout: Path) -> None:
    path = checkout / "docs/benchmarks.md"
    path.write_text(path.read_text().replace("| commits/s, flushed | ", "| commits/s, flushed | 1"))


def write_an_untyped_function(checkout: Path) -> None:
    path = checkout / "sdk/src/rota/__init__.py"
    path.write_text(path.read_text() + "\n\ndef untyped():\n    return 1\n")


def write_a_wrong_type(checkout: Path) -> None:
    path = checkout / "sdk/src/rota/__init__.py"
    path.write_text(path.read_text() + '\n\ndef wrong() -> int:\n    return "one"\n')


BREAKS: list[tuple[Callable[[Path], None], str, str]] = [
    (write_a_function_of_80_lines, "shape", "move straight-line work into functions of their own"),
    (write_an_untyped_function, "lint", "Add return type annotation"),
    (edit_a_generated_file, "protos", "run `make proto` and commit the result"),
    (edit_the_definition_of_a_resource, "resources", "is not what its declaration says; run 'make crds'"),
    (
        change_the_meaning_of_a_metric,
        "metrics",
        "is not what the code exports; run 'python -m scripts.generate",
    ),
    (improve_a_figure_of_the_page, "benchmarks-page", "benchmarks.md in docs differ from docs/measurements"),
    (
        import_grpc_in_a_core,
        "imports",
        "do it in the shell beside the core, and hand the result in as a value BROKEN",
    ),
    (
        import_argparse_beside_the_config,
        "imports",
        "declare a flag in config/flags.py, and read SidecarConfig BROKEN",
    ),
    (import_another_part, "imports", "into a contract or there, or leave it in one of them BROKEN"),
    (have_the_command_line_import_a_part, "imports", "starts the other parts as programs BROKEN"),
    (import_the_command_line, "imports", "belongs into that part, or into a contract BROKEN"),
    (write_a_wrong_type, "types", 'Incompatible return value type (got "str", expected "int")'),
]


@pytest.fixture(scope="module")
def said(checkout: Path) -> str:
    """Output of `make check` for all violations at once; each is found by its own text, which no kept contract has."""
    for break_it, _, _ in BREAKS:
        break_it(checkout)
    done = make(checkout, "--keep-going", "check")
    assert done.returncode != 0
    # Lines are folded to the width of a terminal.
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("part", "remedy"), [each[1:] for each in BREAKS], ids=[each[0].__name__ for each in BREAKS]
)
def test_a_broken_contract_fails_make_check(said: str, part: str, remedy: str) -> None:
    assert re.search(rf"\[Makefile:\d+: {part}\] Error", said), said
    assert remedy in said


def test_a_package_in_the_operator_folder_fails_make_check(checkout: Path) -> None:
    path = checkout / "operator/__init__.py"
    path.write_text('"""In the way."""\n')
    done = make(checkout, "check")
    # It would stand in for the standard library's module in the other tests.
    path.unlink()
    assert done.returncode != 0
    assert "packages to <part>/src" in " ".join(done.stdout.split())


def test_make_help_names_every_target_that_people_use(checkout: Path) -> None:
    done = make(checkout, "help")
    assert done.returncode == 0
    for target in ("setup", "check", "test", "soak", "demo", "bench", "clean", "proto", "format"):
        assert f"\n  {target} " in done.stdout
