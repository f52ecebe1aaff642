"""The readiness probe says no, and loses nothing, to whatever listens at a broker's address and is none."""

import gc
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.kafka import wire
from tests.support.ports import free_port

HOST = "127.0.0.1"
# The other side's end may come before or after the probe's next step.
TIMES = 20
# Makes `close` send a reset.
LINGER_NOT = struct.pack("ii", 1, 0)


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    connection.close()


def answer_nonsense(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(struct.pack(">iih", 6, wire.CORRELATION + 1, 0))
    connection.close()


@contextmanager
def listening(treat: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that treats every connection like that; gives its port."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            for _ in range(TIMES):
                treat(server.accept()[0])

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("tls", [None, ssl.create_default_context()], ids=["plain", "tls"])
@pytest.mark.parametrize("treat", [close, reset, answer_nonsense])
def test_what_is_no_broker_does_not_answer(
    treat: Callable[[socket.socket], None], tls: ssl.SSLContext | None
) -> None:
    with listening(treat) as port:
        assert [wire.answers(HOST, port, tls) for _ in range(TIMES)] == [False] * TIMES
    gc.collect()  # A socket that was lost is a warning now, and so a failure of this test.


def test_nobody_does_not_answer() -> None:
    assert not wire.answers(HOST, free_port())
