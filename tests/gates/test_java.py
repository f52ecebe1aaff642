"""Which Java will do: the check that lets a missing one be told from a broken test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java import java
from tests.support.unavailable import Unavailable


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    java.cache_clear()
    yield
    java.cache_clear()


def put_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, *, version: str) -> None:
    """A `java` that says it is of that version, in front of all others."""
    program = folder / "java"
    said = f"Property settings:\n    java.home = {folder}\n    java.specification.version = {version}"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize("version", ["17", "21"])
def test_new_enough_java_is_taken_with_its_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    put_on_path(monkeypatch, tmp_path, version=version)

    assert java().program == str(tmp_path / "java")
    assert java().home == tmp_path


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_old_java_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    put_on_path(monkeypatch, tmp_path, version=version)

    with pytest.raises(Unavailable, match=rf"is Java {version}: install a JDK of version 17 or newer"):
        java()


def test_missing_java_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match="no `java` on PATH: install a JDK"):
        java()
