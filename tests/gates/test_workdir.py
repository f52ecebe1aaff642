"""Folders of running systems: one in use is never taken for one that was left behind, whatever else begins or ends just then."""

import fcntl
import shutil
from pathlib import Path

import pytest

from tests.support.workdir import LOCK, sweep, workdir

KIND = "thing"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all of them."""
    monkeypatch.setenv("ROTA_TEST_CACHE", str(tmp_path))
    return tmp_path / "run"


def test_a_folder_whose_owner_is_about_to_lock_it_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock

    def lock_after_another_start(file: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            sweep(KIND)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_another_start)
    with workdir(KIND) as folder:
        assert (folder / LOCK).exists()
        assert folder.parent == home
    assert list(home.iterdir()) == []


def test_a_folder_that_its_owner_removes_meanwhile_is_no_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    folder = home / f"{KIND}-1"
    folder.mkdir(parents=True)
    (folder / LOCK).touch()

    def lock_after_the_end(file: int, operation: int) -> None:
        shutil.rmtree(folder)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_the_end)
    sweep(KIND)
    assert list(home.iterdir()) == []


def test_what_a_killed_owner_has_left_is_removed(home: Path) -> None:
    (home / f"{KIND}-1").mkdir(parents=True)
    (home / f"{KIND}-1" / LOCK).touch()
    (home / "other-1").mkdir()
    with workdir(KIND) as folder:
        assert sorted(each.name for each in home.iterdir()) == sorted(["other-1", folder.name])
