"""A machine that cannot have a cluster is told what it lacks, in one line, before anything is built."""

import os
from pathlib import Path

import pytest

from tests.support.cluster import machinery
from tests.support.cluster.prepared import check_machine
from tests.support.unavailable import Unavailable


def programs_say(folder: Path, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
    """Only these programs are found, and this is what they do."""
    for name, script in answers.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def refusal_of_machinery() -> str:
    with pytest.raises(Unavailable) as refused:
        machinery.prepare()
    [line] = str(refused.value).splitlines()
    return line


def test_go_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs_say(tmp_path, monkeypatch)
    assert "install Go 1.26 or newer" in refusal_of_machinery()


def test_an_old_go_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs_say(tmp_path, monkeypatch, go="echo go version go1.9.7 linux/amd64")
    line = refusal_of_machinery()
    assert "go1.9.7" in line
    assert "install Go 1.26 or newer" in line


def test_a_user_without_rights_is_asked_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="run as root"):
        check_machine()


def test_a_container_without_privileges_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    programs_say(tmp_path, monkeypatch, unshare="echo Operation not permitted >&2; exit 1")
    with pytest.raises(Unavailable, match=r"Operation not permitted.*virtual machine"):
        check_machine()
