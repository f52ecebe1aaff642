"""The folders of the parts are folders, never importable packages; and nothing foreign lies in them."""

import sys
from pathlib import Path

from tests.support.tree import MEMBERS, REPO

REMEDY = (
    "move it: packages to <part>/src, tests to tests/<part>. A package in a folder named `operator` replaces the "
    "standard library's module of that name, for every program started in the checkout"
)


def test_no_part_folder_is_a_package_and_none_holds_tests() -> None:
    offenders = [
        str(found.relative_to(REPO))
        for member in MEMBERS
        for pattern in ("*.py", "tests", "test", "**/conftest.py", "**/test_*.py")
        for found in (REPO / member).glob(pattern)
    ]
    assert offenders == [], REMEDY


def test_the_operator_module_in_use_is_the_standard_librarys() -> None:
    file = sys.modules["operator"].__file__
    assert file is not None
    assert not Path(file).is_relative_to(REPO), REMEDY


def test_every_package_is_typed() -> None:
    packages = [path.parent for path in REPO.glob("*/src/*/__init__.py")]
    assert len(packages) == len(MEMBERS)
    assert [str(package) for package in packages if not (package / "py.typed").exists()] == []


def test_folders_say_what_they_are_for() -> None:
    vague = {"utils", "util", "common", "shared", "helpers", "misc", "lib"}
    offenders = [
        str(path.relative_to(REPO))
        for path in REPO.glob("*/**/*")
        if path.stem in vague and ".venv" not in path.parts
    ]
    assert offenders == [], "name a module after what is in it"
