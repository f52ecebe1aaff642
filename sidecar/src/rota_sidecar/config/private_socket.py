"""
A unix socket for this user alone: where it may be, and the mask under which it is made.

The application's service and the drain listener use it. A process of the same user, or root, can open the socket; no
other user and no other machine can.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What the kernel has room for, with the zero at the end.
PATH_BYTES_MAX = 107
PRIVATE_FOLDER = 0o700
PRIVATE = 0o600
# How long a process may take to let us in; one that is stopped is there all the same.
ANSWER_S = 1
ROOT = 0


def problem_of(path: Path) -> str:
    """Why no private socket can be made at `path`; empty when one can: its folder exists and the path is free."""
    return path_problem(path) or folder_problem(path.parent) or clear(path)


@contextmanager
def private() -> Iterator[None]:
    """Whatever the process's mask, what is made within is for this user alone: files 0600, folders 0700."""
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)


def path_problem(path: Path) -> str:
    """Why no socket can have this path; empty when one can."""
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        return f"the path of a socket has at most {PATH_BYTES_MAX} bytes: give a shorter one"
    return ""


def folder_problem(folder: Path) -> str:
    """Why the folder is no place for a private socket; empty when it is, and it is made if it was not there."""
    try:
        # `mode` does not apply to the parents that are made as well: the mask does.
        with private():
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        return f"the folder cannot be used ({error.strerror}): give one that this user may write"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this user may not write into the folder: give another one"
    return owner_problem(found, os.getuid())


def owner_problem(found: os.stat_result, user: int) -> str:
    """
    Whether others could put a socket of theirs in the place of ours; empty when not.

    What belongs to root was made by whoever set the machine up: an emptyDir is open to all, and only the pod sees it.
    """
    if found.st_uid not in (user, ROOT):
        return "the folder belongs to another user, who could put another socket there: give one of your own"
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    if found.st_uid != ROOT and others_write:
        return "others may write into the folder, and put another socket there: make it private (chmod 700)"
    return ""


def clear(path: Path) -> str:
    """Why the path is not free; empty when it is, and the socket of a dead process is removed."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return "there is a file that is no socket: remove it, or give another path"
    except FileNotFoundError:
        return ""
    try:
        if answers(path):
            return "another sidecar listens there: give each its own path"
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"the socket that is there cannot be looked at ({error.strerror}): remove it, or give another path"
    return ""


def answers(path: Path) -> bool:
    """Whether a process has this socket open; raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(ANSWER_S)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except (TimeoutError, BlockingIOError):
            return True
    return True
