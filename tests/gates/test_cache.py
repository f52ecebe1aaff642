"""The cache of what is built for tests: built once, kept while it is used, and bounded."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cache
from tests.support.tree import REPO

KEPT = 2
USES_A = """
import sys
from tests.support import cache
cache.build_once("thing", "a", lambda folder: None)
print("uses it", flush=True)
sys.stdin.readline()
"""
LEAVES_UNFINISHED = """
import os
from tests.support import cache
cache.build_once("thing", "a", lambda folder: os._exit(1))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROTA_TEST_CACHE", str(tmp_path))
    return tmp_path / "thing"


@pytest.fixture
def other_process() -> Iterator["subprocess.Popen[str]"]:
    """A process that uses build a until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", USES_A], cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "uses it\n"
        yield process


def build(key: str) -> None:
    cache.build_once("thing", key, lambda folder: (folder / "file").touch(), kept=KEPT)


def in_another_process(script: str) -> None:
    subprocess.run([sys.executable, "-c", script], cwd=REPO, check=False)


def builds(home: Path) -> set[str]:
    return {path.name for path in home.iterdir() if path.is_dir()}


def test_a_thing_is_built_once(home: Path) -> None:
    build("a")
    cache.build_once("thing", "a", lambda folder: pytest.fail("it was there"))
    assert (home / "a" / "file").exists()


def test_what_this_process_uses_stays(home: Path) -> None:
    for key in "abcd":
        build(key)
    assert builds(home) == set("abcd")


def test_of_the_others_those_that_were_used_last_stay(home: Path) -> None:
    for key in "abc":
        in_another_process(USES_A.replace('"a"', f'"{key}"'))
    in_another_process(USES_A)  # used once more
    build("d")
    assert builds(home) == {"a", "d"}


def test_what_another_process_uses_stays_until_it_ends(
    home: Path, other_process: "subprocess.Popen[str]"
) -> None:
    for key in "bcd":
        build(key)
    assert "a" in builds(home)
    other_process.communicate()
    build("e")
    assert "a" not in builds(home)


def test_what_an_interrupted_build_has_left_goes_with_the_next_one(home: Path) -> None:
    in_another_process(LEAVES_UNFINISHED)
    assert builds(home) == {"a.unfinished"}
    build("b")
    assert builds(home) == {"b"}


def test_a_build_whose_folder_was_deleted_meanwhile_is_made_again(home: Path) -> None:
    build("a")
    for path in (home / "a" / "file", home / "a.lock"):
        path.unlink()
    (home / "a").rmdir()
    build("a")
    assert builds(home) == {"a"}
