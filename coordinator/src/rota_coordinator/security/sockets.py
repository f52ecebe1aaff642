"""

List, measure and shut down the accepted sockets of one port of this process, which gRPC does not expose.
File descriptors are listed from `/dev/fd`. gRPC's threads own them and may close one at any time, and its number may be
reused; so a socket is shut down through a duplicate whose inode was compared.
"""

import os
import resource
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

# Offset of the count of received bytes in the kernel's `struct tcp_info`, since Linux 4.1.
RECEIVED_BYTES_AT = 128
TCP_INFO_BYTES = 136
# Descriptors reserved for the store, the HTTP page, certificates and token files.
RESERVED_DESCRIPTORS = 64


class Descriptor(NamedTuple):
    """A descriptor as first inspected; `peer` is empty unless it is an accepted socket of the port."""

    inode: int
    peer: str
    # gRPC closes it a little later.
    is_shut_down: bool = False


class AcceptedSockets:
    """
    The accepted sockets of a port.

    Invariant: `_descriptors` has the descriptor of every peer in the last list. No method needs a free descriptor,
    because all may be in use.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._known: dict[int, Descriptor] = {}
        self._descriptors: dict[str, int] = {}
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # Reserved for the duplicate of a socket that is shut down.
        self._spare = os.dup(self._nothing)

    def received_bytes(self) -> dict[str, int]:
        """Return the open connections with the bytes that each received; 0 on systems that do not count them."""
        received: dict[str, int] = {}
        known: dict[int, Descriptor] = {}
        self._descriptors = {}
        for descriptor in open_descriptors():
            with suppress(OSError):
                inode = os.fstat(descriptor).st_ino
                this = self._known.get(descriptor)
                if this is None or this.inode != inode:
                    this = Descriptor(inode, peer_of(descriptor, self._port))
                known[descriptor] = this
                if this.peer:
                    self._descriptors[this.peer] = descriptor
                    received[this.peer] = received_by(descriptor)
        self._known = known
        return received

    def room(self) -> int:
        """Return the maximum number of connections that leaves the reserved descriptors free."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        others = len(self._known) - len(self._descriptors)
        return max(1, limit - others - RESERVED_DESCRIPTORS)

    def shut_down(self, peer: str) -> bool:
        """Shut a connection down; gRPC then reads the end of the stream and cancels its calls. False: it was before, or is gone."""
        descriptor = self._descriptors.get(peer)
        if descriptor is None or self._known[descriptor].is_shut_down:
            return False
        with suppress(OSError):
            os.dup2(descriptor, self._spare, inheritable=False)
            if os.fstat(self._spare).st_ino == self._known[descriptor].inode:
                duplicate = socket.socket(fileno=self._spare)
                try:
                    duplicate.shutdown(socket.SHUT_RDWR)
                    self._known[descriptor] = self._known[descriptor]._replace(is_shut_down=True)
                finally:
                    duplicate.detach()
        os.dup2(self._nothing, self._spare, inheritable=False)
        return self._known[descriptor].is_shut_down

    def close(self) -> None:
        """Close the descriptors of this object."""
        os.close(self._spare)
        os.close(self._nothing)


def open_descriptors() -> Iterable[int]:
    """Return the open descriptors, or all possible numbers if no descriptor is free to read the list."""
    try:
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208  takes half the time
    except OSError:
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit, up to what one process can use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def peer_of(descriptor: int, port: int) -> str:
    """Return the peer of an accepted socket of the port in gRPC's notation; empty for any other descriptor."""
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return ""
    try:
        if borrowed.family not in (socket.AF_INET, socket.AF_INET6) or borrowed.getsockname()[1] != port:
            return ""
        return peer_name(borrowed.family, borrowed.getpeername())
    except OSError:
        return ""
    finally:
        borrowed.detach()


def peer_name(family: int, name: tuple[str, int]) -> str:
    """Return a socket's name in gRPC's notation: `ipv4:127.0.0.1:5000`, `ipv6:%5B::1%5D:5000`."""
    host, port = name[:2]
    if family == socket.AF_INET or host.startswith("::ffff:"):
        return f"ipv4:{host.removeprefix('::ffff:')}:{port}"
    return f"ipv6:{quote(f'[{host}]', safe=':')}:{port}"


def received_by(descriptor: int) -> int:
    """Return the bytes that the kernel received on a TCP socket."""
    if sys.platform != "linux":
        return 0
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    finally:
        borrowed.detach()
    count: int = struct.unpack_from("=Q", info, RECEIVED_BYTES_AT)[0]
    return count
