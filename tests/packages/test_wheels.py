"""The wheels of `make dist`, installed without the checkout, as from a package index."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rota_operator.page.server import FILES
from scripts import pins
from tests.examples import stories
from tests.examples.laptop import Laptop
from tests.support.tree import REPO

pytestmark = pytest.mark.process

# What `rota up` starts; Spark applications need pyspark, which takes longer to install than all else.
PARTS = [part for part in pins.PARTS if part != "spark_apps"]
# An index that is far away.
INSTALL_S = 300


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(["make", "--silent", "dist", f"VENV={Path(sys.executable).parents[1]}", f"DIST={folder}"], REPO)
    return folder


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a command that has to succeed, without the checkout on Python's path; return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment | variables, text=True, capture_output=True, timeout=INSTALL_S
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_every_part_has_a_wheel_of_its_own_files_alone(wheels: Path) -> None:
    found = {file.name.partition("-")[0]: file for file in wheels.glob("*.whl")}
    assert sorted(found) == sorted(name.replace("-", "_") for name in pins.PARTS.values())
    for name, file in found.items():
        package = name if name.startswith("rota_") else "rota"
        with zipfile.ZipFile(file) as wheel:
            tops = {path.partition("/")[0] for path in wheel.namelist()}
        assert {top for top in tops if not top.endswith(".dist-info")} == {package}


def test_the_operators_wheel_has_the_files_of_its_page(wheels: Path) -> None:
    (file,) = wheels.glob("rota_operator-*.whl")
    with zipfile.ZipFile(file) as wheel:
        assert {f"rota_operator/page/web/{name}" for name, _ in FILES.values()} <= set(wheel.namelist())


@pytest.mark.timeout(2 * INSTALL_S)
def test_the_orders_example_runs_from_wheels_without_the_checkout(wheels: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    # pip of this environment installs into the other one, which needs none.
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)], tmp_path)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(
        run([sys.executable, str(REPO / "scripts" / "pins.py"), "select", *PARTS], tmp_path)
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(environment),
        "--quiet",
        "--disable-pip-version-check",
    ]
    install = [*pip, "install", "--no-deps"]
    # Compiled when imported: most of what is installed is not.
    run([*install, "--no-compile", "--require-hashes", f"--requirement={requirements}"], tmp_path)
    files = [str(file) for file in wheels.glob("*.whl") if not file.name.startswith("rota_spark")]
    run([*install, "--no-index", *files], tmp_path)

    rota = str(environment / "bin" / "rota")
    versions = run([rota, "version"], tmp_path)
    assert all(f"{pins.PARTS[part]} " in versions for part in PARTS), versions
    example = shutil.copytree(REPO / "examples" / "orders", tmp_path / "orders")
    command = ["env", "--unset=PYTHONPATH", rota, "up"]
    laptop = Laptop(example, tmp_path / ".rota", partitions=12, command=command)
    stories.every_order_has_its_price_once(laptop)
