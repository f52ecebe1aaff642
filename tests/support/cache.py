"""
Cache between runs: jars, the Kubernetes binary, unpacked Debian packages, images.

Everything lies in one folder outside the checkout, `~/.cache/rota-tests` or `$ROTA_TEST_CACHE`, and each
thing in a folder named after what it was made from. So a new version never meets an old build, and
deleting the folder is the whole of cleaning up. Of each thing only the builds that were used last stay,
and those that a process still uses.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Two checkouts side by side, and a change that is taken back.
BUILDS_KEPT = 3
UNFINISHED = ".unfinished"


def root() -> Path:
    """The folder that holds everything built for tests."""
    return Path(os.environ.get("ROTA_TEST_CACHE", Path.home() / ".cache" / "rota-tests"))


def key_of(*parts: str | bytes | Path) -> str:
    """A short name for what something is made from: texts, bytes, or files by their content."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            part = part.read_bytes()
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:16]


def say(text: str) -> None:
    """Progress of long work; on stderr, so that a command's own answer stays alone on stdout."""
    print(text, file=sys.stderr, flush=True)


def build_once(name: str, key: str, build: Callable[[Path], None], *, kept: int = BUILDS_KEPT) -> Path:
    """
    The folder `<cache>/<name>/<key>`, made by `build` if it is not there yet.

    `build` gets an empty folder; it becomes visible under its final name only when `build` returned, so an
    interrupted build leaves nothing that looks finished. A second process waits for the first one's build.
    The folder stays for as long as this process lives; a later build removes it when `kept` others were used since.
    """
    home = root() / name
    done, lock = home / key, home / f"{key}.lock"
    home.mkdir(parents=True, exist_ok=True)
    while not _use(lock, done):
        with locked(lock):
            if not done.is_dir():  # nobody else built it while we waited
                _build(done, build)
        _remove_unused(home, kept, but=done)
    return done


def _build(done: Path, build: Callable[[Path], None]) -> None:
    name = done.parent.name
    unfinished = done.with_suffix(UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    say(f"building {name} (once, kept in {done})")
    started = time.monotonic()
    build(unfinished)
    unfinished.rename(done)
    say(f"built {name} in {time.monotonic() - started:.0f} s")


_used: dict[Path, int] = {}
"""Open lock files of what this process uses, held until it ends."""


def _use(lock: Path, done: Path) -> bool:
    """Keep others from removing what is done; False if it is not."""
    if lock not in _used or not lock.exists():
        _used[lock] = os.open(lock, os.O_RDONLY | os.O_CREAT)
        fcntl.flock(_used[lock], fcntl.LOCK_SH)  # waits for whoever builds it
    if not done.is_dir():
        os.close(_used.pop(lock))
        return False
    os.utime(lock)
    return True


def _remove_unused(home: Path, kept: int, but: Path) -> None:
    """Remove what an interrupted build has left, and all builds but those that were used last or that a process uses."""
    last_used = sorted(home.glob("*.lock"), key=lambda lock: lock.stat().st_mtime, reverse=True)
    builds = [lock for lock in last_used if lock.with_suffix("").is_dir() and lock.with_suffix("") != but]
    for lock in last_used:
        with lock.open("a") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(UNFINISHED), ignore_errors=True)
            if lock in builds[kept - 1 :]:
                shutil.rmtree(lock.with_suffix(""))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file; the kernel lets go of it when this process dies, however it dies."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
