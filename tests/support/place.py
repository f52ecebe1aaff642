"""Where a server of a test runs: on this machine's loopback, or inside the network of a test cluster."""

from dataclasses import dataclass


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
