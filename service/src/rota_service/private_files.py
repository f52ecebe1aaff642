"""

Files, folders and unix sockets that only this user can open: checks of their folders, and creation with private modes.
The servers call this module before they bind a socket or write a state file. Other processes of the same user and root
can open the files; other users and other machines cannot.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
# Permission bits that group and others never get; also used as the umask.
OTHERS = 0o077
# The kernel's limit for the path of a unix socket, 108 with the terminating zero.
SOCKET_PATH_BYTES_MAX = 107
# Seconds for a process to accept a connection; a stopped process does not accept, but still has the socket.
CONNECT_S = 1
ROOT = 0


@contextmanager
def owner_only() -> Iterator[int]:
    """Make new files with mode 0600 and new folders with 0700 within the block; yields the umask of before."""
    mask = os.umask(OTHERS)
    try:
        yield mask
    finally:
        os.umask(mask)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700; one that exists stays as it is. Raises OSError."""
    # `mode` does not apply to the parents: the umask does.
    with owner_only():
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def socket_problem(path: Path) -> str:
    """
    Return why no private socket can be bound at an absolute path; empty when one can.

    Makes the folder if it is missing, and removes the socket of a process that has ended.
    """
    return _path_problem(path) or _folder_problem(path.parent) or _occupied(path)


def bound_socket(path: Path, mode: int = FILE_MODE) -> socket.socket:
    """Bind a unix socket, which only this user can open until it has the permissions of `mode`. Raises OSError."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with owner_only():
            bound.bind(str(path))
        path.chmod(mode)
    except OSError:
        bound.close()
        raise
    return bound


def owner_problem(found: os.stat_result, user: int) -> str:
    """
    Return why another user could replace files in a folder; empty when none but root can.

    A folder of root was made by the machine's administrator: an emptyDir is open to all users of its pod alone.
    """
    if found.st_uid not in (user, ROOT):
        return "the folder belongs to another user, who could replace the socket; give a folder of this user"
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    if found.st_uid != ROOT and others_write:
        return (
            "other users may write into the folder, and could replace the socket; make it private (chmod 700)"
        )
    return ""


def _path_problem(path: Path) -> str:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        return f"the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes; give a shorter one"
    return ""


def _folder_problem(folder: Path) -> str:
    try:
        make_folder(folder)
        found = folder.stat()
    except OSError as error:
        return f"the folder cannot be used ({error.strerror}); give one that this user may write"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this user may not write into the folder; give another one"
    return owner_problem(found, os.getuid())


def _occupied(path: Path) -> str:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return "a file that is not a socket exists there; remove it, or give another path"
    except FileNotFoundError:
        return ""
    try:
        if _is_open(path):
            return "another process listens there; give each its own path"
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"the existing socket cannot be examined ({error.strerror}); remove it, or give another path"
    return ""


def _is_open(path: Path) -> bool:
    """Return whether a process has the socket open. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except (TimeoutError, BlockingIOError):
            return True
    return True
