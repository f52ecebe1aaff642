"""
A cluster that outlives the command that started it, for people who try something out.

Called by the command line. Tests never see it, nor it them: it has a folder of its own, and no address of it
is visible outside its namespaces but a port on the loopback.
"""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import cache
from tests.support.cluster.cluster import KUBECONFIG, remove_leftovers
from tests.support.cluster.keeper import IDENTITY, READY
from tests.support.cluster.process_identity import Identity

CHECKOUT = Path(__file__).parents[3]
DEFAULT = "default"
STOPPED_WITHIN_S = 120
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class Refused(Exception):
    """The command does not fit the cluster's state; the message names the one that does."""


class Detached:
    """The cluster of that name, running or not."""

    def __init__(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise Refused(f"'{name}' cannot be a cluster's name: use lower-case letters, digits and dashes")
        self.name = name
        self.folder = cache.root() / "run-detached" / f"cluster-{name}"

    def running(self) -> bool:
        """Return True if the cluster is ready for use."""
        keeper = self._keeper()
        return keeper is not None and keeper.alive() and (self.folder / READY).exists()

    def kubeconfig(self) -> Path:
        """Of the running cluster."""
        if not self.running():
            raise Refused(
                f"no cluster '{self.name}' is running; start it: python -m tests.support.cluster up{self.option()}"
            )
        return self.folder / KUBECONFIG

    def up(self) -> bool:
        """Start it; False when it was running already. Removes first what a killed start has left."""
        with self._alone():
            if self.running():
                return False
            self._remove()
            self.folder.mkdir()
            try:
                self._start()
            except BaseException:
                self._remove()
                raise
            return True

    def down(self) -> None:
        """Stop it and remove all of it."""
        with self._alone():
            if not self.folder.exists():
                raise Refused(f"no cluster '{self.name}' is running, and none has left anything to remove")
            self._remove()

    def _start(self) -> None:
        # It dies with this process until it is ready. In a session of its own: what is typed here, Ctrl-C above
        # all, reaches this process, which then stops it in an orderly way.
        tied = ["setpriv", "--pdeathsig", "KILL", "--"]
        keep = [sys.executable, "-m", "tests.support.cluster.keeper", str(self.folder)]
        keeper = subprocess.Popen(
            [*tied, *keep],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert keeper.stdout is not None
        with keeper.stdout:
            if keeper.stdout.readline() != f"{READY}\n":
                raise Refused(f"the cluster '{self.name}' did not start, see above")

    def _remove(self) -> None:
        """Stop its keeper, if there is one, and remove what a keeper that was killed has left."""
        if not self.folder.exists():
            return
        keeper = self._keeper()
        if keeper is not None:
            keeper.end(signal.SIGTERM, within_s=STOPPED_WITHIN_S)
        remove_leftovers(self.folder)
        shutil.rmtree(self.folder)

    def _keeper(self) -> Identity | None:
        try:
            return Identity.read(self.folder / IDENTITY)
        except FileNotFoundError:
            return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two commands at the same time would remove each other's work."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with cache.locked(self.folder.parent / "commands.lock"):
            yield

    def option(self) -> str:
        """Environment with which a command line uses this cluster."""
        return "" if self.name == DEFAULT else f" --name {self.name}"
