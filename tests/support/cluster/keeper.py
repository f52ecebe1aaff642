"""
A program: the process that a detached cluster lives in.

    python -m tests.support.cluster.keeper FOLDER

Started by `detached` for `up`, told to end by `down`. A cluster lives as long as the process that opened it, be
that a test run or this one; so nothing about a detached cluster differs from one in a test, and when this
process is killed everything in the cluster dies with it.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.support.cluster.cluster import running
from tests.support.cluster.prepared import prepare
from tests.support.cluster.process_identity import Identity

IDENTITY = "keeper"
READY = "ready"
SET_PARENT_DEATH_SIGNAL = 1


def keep(folder: Path) -> None:
    """Start a cluster in the folder, say that it is ready, and stop it when told to."""
    signal.signal(signal.SIGTERM, _leave)
    Identity.of(os.getpid()).write(folder / IDENTITY)
    with running(folder, prepare()):
        _outlive_parent()
        (folder / READY).touch()
        print(READY, flush=True)
        _let_go_of_terminal(folder / "keeper.log")
        signal.pause()


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _outlive_parent() -> None:
    """Until now this process was to die with `up`, so that no half-made cluster stays when that is killed."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, 0)


def _let_go_of_terminal(log: Path) -> None:
    """Redirect output to the log: else a reader of the output of `up` would wait until the cluster is taken down."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
