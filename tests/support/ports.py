"""
Ports for the servers of tests.

A server that takes seconds to start must find its port as it was drawn. So ports are drawn in turn from one counter,
which all processes of tests on this machine share, and lie below the range from which the kernel serves outgoing
connections.
"""

import fcntl
import random
import socket
from contextlib import suppress
from itertools import chain
from pathlib import Path

from tests.support import cache

OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 10_000
COUNTER = "last-port"


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is unused now; it is drawn again, by any process, when all others were."""
    end = int(OUTGOING_PORTS.read_text().split()[0])
    cache.root().mkdir(parents=True, exist_ok=True)
    with (cache.root() / COUNTER).open("a+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        last = int(counter.read() or random.randrange(LOWEST_PORT, end))
        for port in chain(range(last + 1, end), range(LOWEST_PORT, min(last + 1, end))):
            with socket.socket() as probe, suppress(OSError):
                probe.bind((host, port))
                counter.truncate(0)
                counter.write(str(port))
                return port
    raise OSError(
        f"no free port on {host} between {LOWEST_PORT} and {end}, where {OUTGOING_PORTS} begins; "
        "raise that limit, or end what listens on all of them"
    )
