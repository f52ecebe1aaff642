"""An index that gives another file than the pinned one is refused before its code runs, in one sentence."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pip
import pytest

from scripts.pins import FILE, PARTS, SETS, Pin, read, select, write
from tests.support.tree import REPO

NAME = "tiny"
RECORDED = {
    f"{NAME}.py": "",
    f"{NAME}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
    f"{NAME}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


class Checkout(NamedTuple):
    """A checkout with the real setup script, and one dependency; its index is a folder."""

    folder: Path
    files: Path
    digest: str

    def pin(self, digest: str) -> None:
        """Write constraints.txt with this hash."""
        pin = Pin(f"{NAME}==1.0", (f"sha256:{digest}",), SETS)
        (self.folder / "constraints.txt").write_text(pin.lines())

    def setup(self) -> "subprocess.CompletedProcess[str]":
        """Run `scripts/setup demo`, with nothing but the folder to install from."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PIP_") and name not in {"VENV", "PYTHONPATH"}
        }
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.files), "PYTHON": sys.executable}
        # pip is the one of this environment: to make an environment with its own takes longer than all else.
        settings["PYTHONPATH"] = str(Path(pip.__file__).parents[1])
        return subprocess.run(
            [self.folder / "scripts" / "setup", "demo"],
            env={**environment, **settings},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def is_installed(self) -> bool:
        return any(self.folder.glob(f".venv/lib/*/site-packages/{NAME}.py"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder, index = tmp_path / "checkout", tmp_path / "index"
    (folder / "scripts").mkdir(parents=True)
    index.mkdir()
    venv.create(folder / ".venv", with_pip=False, symlinks=True)
    (folder / ".venv" / "bin" / "pip").touch(mode=0o755)
    for script in ("setup", "pins.py"):
        shutil.copy(REPO / "scripts" / script, folder / "scripts")
    wheel = index / f"{NAME}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in RECORDED.items():
            archive.writestr(path, content)
        record = "".join(f"{path},,\n" for path in (*RECORDED, f"{NAME}-1.0.dist-info/RECORD"))
        archive.writestr(f"{NAME}-1.0.dist-info/RECORD", record)
    return Checkout(folder, index, hashlib.sha256(wheel.read_bytes()).hexdigest())


@pytest.mark.process
def test_a_file_with_another_hash_is_refused_with_one_message_and_not_installed(checkout: Checkout) -> None:
    checkout.pin(hashlib.sha256(b"what was tested").hexdigest())
    refused = checkout.setup()
    assert refused.returncode == 1
    _, *sentences = refused.stderr.splitlines()
    assert len(sentences) == 1
    assert re.match(r"setup: the index gave a file of tiny==1\.0 whose SHA-256 is not in", sentences[0])
    assert not checkout.is_installed()

    # The same file is installed under its own hash. What follows fails: this checkout has no parts.
    checkout.pin(checkout.digest)
    assert "SHA-256" not in checkout.setup().stderr
    assert checkout.is_installed()


def test_every_dependency_has_a_version_and_hashes() -> None:
    pins = list(read(FILE.read_text()))
    assert len({pin.name for pin in pins}) == len(pins) > 0
    for pin in pins:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; .+)?", pin.requirement)
        assert pin.hashes, pin.name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in pin.hashes), pin.name
        assert pin.sets
        assert set(pin.sets) <= set(SETS), pin.name


def test_what_is_selected_names_its_hashes_and_nothing_of_other_sets() -> None:
    pins = list(read(FILE.read_text()))
    assert list(read(select(pins, SETS))) == pins
    sidecar = {pin.name for pin in read(select(pins, ["sidecar"]))}
    assert "kafka-python" in sidecar
    assert sidecar.isdisjoint({"pyspark", "psycopg", "pytest"})


def test_the_file_is_written_from_what_the_resolver_exports() -> None:
    exported = "b==2 ; sys_platform == 'win32' \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\na==1 \\\n    --hash=sha256:1\n"
    needed = {**{each: set[str]() for each in SETS}, "sdk": {"a"}, "build": {"a", "b"}}
    assert list(read(write(exported, needed))) == [
        Pin("b==2 ; sys_platform == 'win32'", ("sha256:2", "sha256:3"), ("build",)),
        Pin("a==1", ("sha256:1",), ("sdk", "build")),
    ]


def test_every_part_has_its_set() -> None:
    assert {path.parent.name for path in REPO.glob("*/pyproject.toml")} == set(PARTS)


def test_pip_is_called_by_hash_or_without_an_index() -> None:
    """Wherever the repository itself installs: the setup script and the image."""
    dockerfile = (REPO / "Dockerfile").read_text().replace("\\\n", " ")
    setup = (REPO / "scripts" / "setup").read_text()
    # The function is defined once, and called with either flag.
    calls = re.findall(r"/pip (?:install|wheel)[^&;]*", dockerfile) + re.findall(
        r"^ *pip_install --.*", setup, re.MULTILINE
    )
    assert len(calls) == 6
    for call in calls:
        assert ("--require-hashes" in call) != ("--no-index" in call), call
