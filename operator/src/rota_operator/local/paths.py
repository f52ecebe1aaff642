"""
Paths and addresses of a local run: locks the home folder, reserves ports, and names both to other commands.
"""

import fcntl
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rota_operator.local.commands import LocalPaths
from rota_operator.spec.model import ROTA
from rota_service.private_files import FOLDER_MODE

ANY_PORT = "127.0.0.1:0"
# Coordinator and page accept every client, so they listen on loopback only.
LOOPBACK = ("127.0.0.1", "localhost")
PORT_MAX = 65535
KAFKA = "kafka://"
BROKERS = re.compile(r"[^\s,:/]+:[0-9]+(,[^\s,:/]+:[0-9]+)*")


class CannotStart(Exception):
    """The runner cannot start; nothing was started. The message is one line for the user."""


@contextmanager
def local_paths(home: Path, listen: str, page: str, kafka: str = "") -> Iterator[LocalPaths]:
    """Lock the home folder and reserve addresses. Raises CannotStart if another runner has the folder."""
    kafka = kafka.removeprefix(KAFKA)
    if kafka and not BROKERS.fullmatch(kafka):
        raise CannotStart(f"invalid --kafka {kafka}; expected HOST:PORT, comma-separated")
    home = home.absolute()
    home.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    with ExitStack() as stack:
        lock = stack.enter_context((home / "lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStart(f"another runner uses {home}; stop it, or choose another --home") from None
        # Address files of an earlier run name servers that no longer answer.
        for name in ("address", "page"):
            (home / name).unlink(missing_ok=True)
        coordinator = f"{ROTA}{stack.enter_context(reserved_address(listen))}"
        page = stack.enter_context(reserved_address(page))
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-")))
        try:
            yield LocalPaths(Path(sys.executable), coordinator, home, sockets, page=page, kafka=kafka)
        finally:
            # Commands would connect to servers that have stopped.
            (home / "page").unlink(missing_ok=True)


def publish(paths: LocalPaths) -> None:
    """Write the files that name the servers and the page; called once both answer."""
    servers = f"{KAFKA}{paths.kafka}" if paths.kafka else paths.coordinator
    write_atomically(paths.home / "address", f"{servers}\n")
    write_atomically(paths.home / "page", f"http://{paths.page}\n")


def write_atomically(file: Path, text: str) -> None:
    """Replace the file by rename, so that readers never see a part of it."""
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(text)
    beside.replace(file)


@contextmanager
def reserved_address(wanted: str) -> Iterator[str]:
    """
    Reserve the requested loopback address, or another port if it is in use, until the context exits. Raises CannotStart.

    Between the choice of a port and its server's start another runner may choose the same: both would wait for the one
    server, and write to its log. A runner therefore holds the UDP port of this number, which no server here uses.
    """
    host, port = parse_loopback(wanted)
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as reservation:
            try:
                reservation.bind((host, port))
            except OSError:
                port = 0
                continue
            reserved = int(reservation.getsockname()[1])
            if is_free(host, reserved):
                yield f"{host}:{reserved}"
                return
        port = 0


def free_address() -> str:
    """Return a loopback address with a free port; it is not reserved."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK[0], 0))
        return f"{LOOPBACK[0]}:{probe.getsockname()[1]}"


def is_free(host: str, port: int) -> bool:
    """True if a server could listen on the TCP port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def parse_loopback(address: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises CannotStart if the host is not a loopback address."""
    host, _, port = address.rpartition(":")
    if host not in LOOPBACK or not port.isdecimal() or int(port) > PORT_MAX:
        raise CannotStart(f"{address} is not a loopback address; expected 127.0.0.1:PORT")
    return host, int(port)
