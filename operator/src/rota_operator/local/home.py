"""
Restricts files of earlier runs to their owner; called once when the local runner starts.

The runner and Rota's processes run with a restrictive umask; applications get the user's own umask from their supervisor.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from rota_service.private_files import OTHERS

# Names of the runner's files in a home folder; the coordinator's files begin with its name, the demo has a
# subfolder.
OWN = frozenset({"address", "demo", "lock", "logs", "page", "resets", "settings", "state"})
COORDINATOR = "coordinator."


def make_private(home: Path, print_line: Callable[[str], None]) -> None:
    """
    Remove group and other permissions from Rota's files in `home`, and from `home` if it has no other files.

    Prints a warning if `home` stays accessible to other users.
    """
    # A folder with other files is a project folder, or /tmp: its permissions are its owner's decision.
    is_own = all(path.name in OWN or path.name.startswith(COORDINATOR) for path in home.iterdir())
    for path in home.iterdir():
        if path.name in OWN or path.name.startswith(COORDINATOR):
            _close_to_others(path)
    if is_own:
        _close(home)
    mode = home.stat().st_mode
    if mode & OTHERS:
        what = "belongs to another user" if is_own else "contains files that are not Rota's"
        others = f"is accessible to other users (mode {stat.S_IMODE(mode):03o})"
        print_line(f"warning: {home} {what} and {others}; use a separate folder for --home")


def _close_to_others(path: Path) -> None:
    """Restrict a file, or a folder recursively; symbolic links are not followed."""
    _close(path)
    if path.is_dir() and not path.is_symlink():
        for below in path.iterdir():
            _close_to_others(below)


def _close(path: Path) -> None:
    found = path.lstat()
    is_open = not stat.S_ISLNK(found.st_mode) and found.st_mode & OTHERS
    if is_open and found.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
