"""
Cache between runs: jars, the Kubernetes binary, unpacked Debian packages, images.

Everything lies in one folder outside the checkout, `~/.cache/rota-tests` or `$ROTA_TEST_CACHE`, and each
thing in a folder named after what it was made from. So a new version never meets an old build, and
deleting the folder is the whole of cleaning up.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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


def build_once(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """
    The folder `<cache>/<name>/<key>`, made by `build` if it is not there yet.

    `build` gets an empty folder; it becomes visible under its final name only when `build` returned, so an
    interrupted build leaves nothing that looks finished. A second process waits for the first one's build.
    """
    home = root() / name
    done = home / key
    if done.is_dir():
        return done
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / f"{key}.lock"):
        if done.is_dir():  # somebody else built it while we waited
            return done
        unfinished = home / f"{key}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        say(f"building {name} (once, kept in {done})")
        started = time.monotonic()
        build(unfinished)
        unfinished.rename(done)
        say(f"built {name} in {time.monotonic() - started:.0f} s")
    return done


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file; the kernel lets go of it when this process dies, however it dies."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
