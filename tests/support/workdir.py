"""
Folders of running systems: private, short-lived, and found again when their owner was killed.

The owner holds a lock on its folder, which the kernel drops when it dies. So the next start of a system of the
same kind can distinguish a folder in use from one left behind, and removes the latter.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import cache

LOCK = "owner.lock"


@contextmanager
def workdir(kind: str, *, abandoned: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """
    A new folder `<cache>/run/<kind>-…`, removed at the end.

    Folders of that kind whose owner died are removed first; `abandoned(folder)` runs before that, for what
    outlives a process (mounts, namespaces, cgroups).
    """
    home = cache.root() / "run"
    home.mkdir(parents=True, exist_ok=True)
    sweep(kind, abandoned)
    # Under a name that `sweep` does not look at until the lock is held.
    unlocked = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=home))
    with (unlocked / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = unlocked.rename(home / unlocked.name.removeprefix("."))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def sweep(kind: str, abandoned: Callable[[Path], None] | None = None) -> None:
    """Remove the folders of `kind` whose owner is dead."""
    for folder in sorted((cache.root() / "run").glob(f"{kind}-*")):
        try:
            lock = (folder / LOCK).open()
        except FileNotFoundError:
            continue  # being made or being removed just now
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its owner lives
            if not folder.exists():
                continue  # its owner has removed it meanwhile
            if abandoned is not None:
                abandoned(folder)
            shutil.rmtree(folder)


def logs(folder: Path) -> Path:
    """
    Folder for a system's logs: below the tier's log folder when the tier runner set one (it keeps them
    when the tier fails), else inside the system's own folder.
    """
    kept = os.environ.get("ROTA_TEST_LOGS")
    kept_logs = Path(kept) / folder.name if kept else folder / "logs"
    kept_logs.mkdir(parents=True, exist_ok=True)
    return kept_logs
