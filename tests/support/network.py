"""
Network namespaces of a test's servers: this machine's, or one inside the network of a test cluster.

Every server of the tests takes a `Network`, so that none of them depends on whether pods connect to it.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NetworkNamespace:
    """
    A network to start a process in.

    A server listens on `address`, which its clients in that network dial. `enter` is put before the command
    that starts it; it changes the network only: files, folder and user stay those of the test.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


HERE = NetworkNamespace()


class Network(Protocol):
    """Network of a test cluster, for servers that pods connect to."""

    def namespace(self) -> NetworkNamespace:
        """Namespace to start the server in."""
        ...

    def forward(self, host: str, port: int, *, listen: int = 0) -> AbstractContextManager[int]:
        """While open, 127.0.0.1:`listen` out here leads to `host`:`port` in there; gives the port out here."""
        ...


class Loopback:
    """The network of a server that only this machine reaches: nothing to enter, nothing to forward."""

    def namespace(self) -> NetworkNamespace:
        return HERE

    def forward(self, host: str, port: int, *, listen: int = 0) -> AbstractContextManager[int]:
        if host != HERE.address or listen not in (0, port):
            raise ValueError(f"on this machine {host}:{port} is reached as it is, not through port {listen}")
        return nullcontext(port)


LOOPBACK = Loopback()
