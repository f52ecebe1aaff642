"""
Where a server of a test runs: on this machine's loopback, or inside the network of a test cluster.

Every server of tests takes a `Network`, so that none of them knows whether pods are to reach it.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Place:
    """
    A network to start a process in.

    A server listens on `address`, which its clients in that network dial. `enter` is put before the command
    that starts it; it changes the network only: files, folder and user stay those of the test.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


HERE = Place()


class Network(Protocol):
    """What a test cluster offers to a server that its pods shall reach."""

    def place(self) -> Place:
        """Where to start the server."""
        ...

    def forward(self, host: str, port: int, *, listen: int = 0) -> AbstractContextManager[int]:
        """While open, 127.0.0.1:`listen` out here leads to `host`:`port` in there; gives the port out here."""
        ...


class Loopback:
    """The network of a server that only this machine reaches: nothing to enter, nothing to forward."""

    def place(self) -> Place:
        return HERE

    def forward(self, host: str, port: int, *, listen: int = 0) -> AbstractContextManager[int]:
        if host != HERE.address or listen not in (0, port):
            raise ValueError(f"on this machine {host}:{port} is reached as it is, not through port {listen}")
        return nullcontext(port)


LOOPBACK = Loopback()
