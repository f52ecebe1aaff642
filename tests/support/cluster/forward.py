"""
A way from this machine's loopback to something inside a cluster's network.

Called by `Cluster`: once for the API server, and by tests for servers of theirs.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Process

PROGRAM = Path(__file__).with_name("forwarder.py")
LISTENS_WITHIN_S = 60


@contextmanager
def forward(pid: int, target: tuple[str, int], *, listen: int, logs: Path) -> Iterator[int]:
    """While open, 127.0.0.1:`listen` (0: any port; it is given back) leads to `target` in the network of `pid`."""
    host, port = target
    # A file of its own: the first line is the port.
    log = logs / f"forward-{host}-{port}-{time.monotonic_ns()}.log"
    namespace = f"/proc/{pid}/ns/net"
    # Isolated: neither the caller's environment nor an installed package is of use to it, and both cost time.
    command: list[str | Path] = [sys.executable, "-I", "-S", PROGRAM, namespace, host, str(port), str(listen)]
    process = Process.start(f"forward to {host}:{port}", command, log=log)
    try:
        process.wait_until(lambda: log.read_text().endswith("\n"), within_s=LISTENS_WITHIN_S)
        yield int(log.read_text().splitlines()[0])
    finally:
        process.kill()
