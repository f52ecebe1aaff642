"""What `make check` promises to catch, it catches, and its message names the remedy."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tree import REPO, files


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


def make(target: str, checkout: Path) -> "subprocess.CompletedProcess[str]":
    """Run make in the copy, with the tools of the environment that runs this test."""
    environment = Path(sys.executable).parents[1]
    # What make tells its children about itself would make the inner one part of the outer one.
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))
    }
    # No set-up: the environment is there, and newer files in the copy must not make it anew.
    command = ["make", f"VENV={environment}", "--assume-old", f"{environment}/.all", target]
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, timeout=150)


def import_grpc_in_a_core(checkout: Path) -> Path:
    path = checkout / "coordinator/src/rota_coordinator/group/__init__.py"
    path.write_text(path.read_text() + "\nimport grpc\n\nCHANNEL = grpc.Channel\n")
    return path


def import_another_part(checkout: Path) -> Path:
    path = checkout / "sidecar/src/rota_sidecar/__init__.py"
    path.write_text(path.read_text() + "\nimport rota_operator\n\nPLAN = rota_operator\n")
    return path


def edit_a_generated_file(checkout: Path) -> Path:
    path = checkout / "proto/src/rota_proto/fleet/v1/fleet_pb2.py"
    path.write_text(path.read_text() + "# edited by hand\n")
    return path


def write_a_function_of_80_lines(checkout: Path) -> Path:
    path = checkout / "sdk/src/rota/__init__.py"
    body = "".join(f"    total += {line}\n" for line in range(77))
    path.write_text(path.read_text() + f"\n\ndef long() -> int:\n    total = 0\n{body}    return total\n")
    return path


def write_an_untyped_function(checkout: Path) -> Path:
    path = checkout / "sdk/src/rota/__init__.py"
    path.write_text(path.read_text() + "\n\ndef untyped():\n    return 1\n")
    return path


def write_a_wrong_type(checkout: Path) -> Path:
    path = checkout / "sdk/src/rota/__init__.py"
    path.write_text(path.read_text() + '\n\ndef wrong() -> int:\n    return "one"\n')
    return path


def put_a_package_into_the_operator_folder(checkout: Path) -> Path:
    path = checkout / "operator/__init__.py"
    path.write_text('"""In the way."""\n')
    return path


@pytest.mark.parametrize(
    ("breakage", "remedy"),
    [
        (import_grpc_in_a_core, "do it in the shell beside the core"),
        (import_another_part, "put what two of them need into a contract"),
        (edit_a_generated_file, "run `make proto` and commit the result"),
        (write_a_function_of_80_lines, "move straight-line work into functions of their own"),
        (write_an_untyped_function, "Add return type annotation"),
        (put_a_package_into_the_operator_folder, "packages to <part>/src"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_contract_fails_make_check(
    checkout: Path, breakage: Callable[[Path], Path], remedy: str
) -> None:
    path = REPO / breakage(checkout).relative_to(checkout)
    try:
        done = make("check", checkout)
    finally:
        restore(checkout, path)
    # Lines are folded to the width of a terminal.
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0, said
    assert remedy in said


def restore(checkout: Path, path: Path) -> None:
    """Put the file back as it is in the tree, or away if it is not there."""
    broken = checkout / path.relative_to(REPO)
    if path.exists():
        shutil.copy2(path, broken)
    else:
        broken.unlink()


def test_a_wrong_type_fails_make_types(checkout: Path) -> None:
    path = REPO / write_a_wrong_type(checkout).relative_to(checkout)
    done = make("types", checkout)
    restore(checkout, path)
    assert done.returncode != 0
    assert 'Incompatible return value type (got "str", expected "int")' in done.stdout


def test_make_help_names_every_target_that_people_use(checkout: Path) -> None:
    done = make("help", checkout)
    assert done.returncode == 0
    for target in ("setup", "check", "test", "soak", "demo", "bench", "clean", "proto", "format"):
        assert f"\n  {target} " in done.stdout
