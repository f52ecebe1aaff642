"""
The sidecar that a query starts: a child process of the driver on a private socket.

It ends with the driver, even after a kill: its standard input is a pipe from the driver. Then it leaves the group after its drain,
and the partitions go to other members.
"""

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from rota.addresses import is_rota
from rota.connection import CREDENTIAL_VARIABLES, Credentials, credentials_of_environment
from rota_spark.membership import MembershipFailed
from rota_spark.settings import Settings

log = logging.getLogger("rota.sidecar")
MODULE = "rota_sidecar"
LISTENS = "listening on "
CLOSE_S = 30.0
LINES_MAX = 20


class OwnSidecar:
    """Invariant: after `start` the process serves at `address`, or has ended."""

    def __init__(self, settings: Settings) -> None:
        if importlib.util.find_spec(MODULE) is None:
            raise MembershipFailed(
                "the query starts a sidecar, but rota-sidecar is not installed in the driver's Python: install it, or name a "
                "running sidecar with sidecar="
            )
        self._settings = settings
        # A folder that only this user can access.
        self._folder = Path(tempfile.mkdtemp(prefix="rota-spark-"))
        self.address = f"unix:{self._folder / 'app.sock'}"
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._listens = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._reading = threading.Thread(target=self._read, name="rota-sidecar-log", daemon=True)

    def start(self) -> None:
        """Start the process, and return when it serves. Raises MembershipFailed."""
        own = {name: value for name, value in os.environ.items() if name not in CREDENTIAL_VARIABLES}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *flags(self._settings, self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C reaches the driver only, which stops the sidecar when the batch in flight is done.
            start_new_session=True,
            env=own,
        )
        self._reading.start()
        self._listens.wait()
        if self._process.poll() is not None:
            last = self._lines[-1] if self._lines else "it logged nothing"
            self.close()
            raise MembershipFailed(
                f"the query's own sidecar exited with code {self._process.returncode}: {last}"
            )

    def _read(self) -> None:
        """Log the sidecar's standard error until it exits."""
        assert self._process is not None
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                self._lines.append(text)
                log.info("%s", text)
                if LISTENS in text:
                    self._listens.set()
        self._process.wait()
        self._listens.set()

    def close(self) -> None:
        """Stop the process: it leaves the group."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                log.warning("the query's own sidecar did not exit within %s s; killing it", CLOSE_S)
                self._process.kill()
                self._process.wait()
            self._reading.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def flags(settings: Settings, folder: Path) -> Iterator[str]:
    """Build the sidecar's flags; none of them is secret, as arguments are public on a machine."""
    yield "--ends-with-stdin"
    yield f"--bootstrap-servers={settings.bootstrap_servers}"
    yield f"--group-id={settings.group_id}"
    yield f"--client-id={settings.client_id}"
    yield f"--topics={','.join(settings.topics)}"
    yield f"--listen-socket={folder / 'app.sock'}"
    yield "--listen="
    if not any(each.startswith("--http-listen=") for each in settings.sidecar_flags):
        yield "--http-listen="
    if is_rota(settings.bootstrap_servers):
        yield from credential_flags(credentials_of_environment(os.environ))
    yield from settings.sidecar_flags


def credential_flags(credentials: Credentials) -> Iterator[str]:
    """Build the flags of the environment's credential files for Rota's servers."""
    if credentials.ca_file is not None:
        yield f"--rota-tls-ca={credentials.ca_file}"
    if credentials.token_file is not None:
        yield f"--token-file={credentials.token_file}"
