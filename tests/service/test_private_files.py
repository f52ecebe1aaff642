"""Files, folders and sockets of this user: their modes, and where a socket may not be."""

import os
import socket
import stat
from pathlib import Path

import pytest

from rota_service.private_files import (
    FILE_MODE,
    FOLDER_MODE,
    make_folder,
    owner_only,
    owner_problem,
    socket_problem,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o177])
def test_files_and_folders_are_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        make_folder(tmp_path / "a" / "b")
        with owner_only() as earlier:
            (tmp_path / "file").touch()
        assert earlier == mask
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert [mode_of(tmp_path / each) for each in ("a", "a/b", "file")] == [
        FOLDER_MODE,
        FOLDER_MODE,
        FILE_MODE,
    ]


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path)
    assert mode_of(tmp_path) == 0o755


def test_the_socket_of_an_ended_process_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "run" / "app.sock"
    assert socket_problem(path) == ""
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(os.fspath(path))
    assert socket_problem(path) == ""
    assert not path.exists()


def test_a_socket_in_use_stays(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(os.fspath(path))
        other.listen()
        assert socket_problem(path) == "another process listens there; give each its own path"
    assert path.exists()


def test_a_path_that_no_socket_can_have_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    for path, problem in (
        (tmp_path / ("x" * 108), "the path of a socket has at most 107 bytes; give a shorter one"),
        (tmp_path / "file", "a file that is not a socket exists there; remove it, or give another path"),
        (
            tmp_path / "file" / "app.sock",
            "the folder cannot be used (File exists); give one that this user may write",
        ),
    ):
        assert socket_problem(path) == problem
    assert (tmp_path / "file").read_text() == "precious"


def folder(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "problem"),
    [
        (0o700, 1_000, ""),
        (0o755, 1_000, ""),
        (0o1777, 1_000, ""),
        # As kubelet makes an emptyDir.
        (0o777, 0, ""),
        (0o777, 1_000, "other users may write into the folder"),
        (0o770, 1_000, "other users may write into the folder"),
        (0o700, 1_001, "the folder belongs to another user"),
    ],
)
def test_no_other_user_may_be_able_to_replace_a_socket(mode: int, owner: int, problem: str) -> None:
    found = owner_problem(folder(mode, owner), user=1_000)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)
