"""The guard on real sockets: a connection beyond a limit is shut down, counted and reported once."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rota_coordinator.security.connections import Closing, Connections
from rota_coordinator.security.guard import ConnectionGuard
from rota_coordinator.security.limits import Limits
from rota_coordinator.security.sockets import AcceptedSockets, peer_name

WITHIN_S = 60


class Guarded:
    """A port with one accepted connection, and its guard."""

    def __init__(self, opened: ExitStack) -> None:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.client = opened.enter_context(socket.create_connection(listener.getsockname(), WITHIN_S))
        accepted, name = listener.accept()
        self.accepted = opened.enter_context(accepted)
        self.closing = Closing(peer_name(socket.AF_INET, name), "it exceeds a limit")
        self.connections = Connections(Limits(stranger_seconds=0))
        self.sockets = AcceptedSockets(listener.getsockname()[1])
        opened.callback(self.sockets.close)
        self.reported: list[Closing] = []
        self.guard = ConnectionGuard(self.connections, self.sockets, self.reported.append)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with ExitStack() as opened:
        yield Guarded(opened)


def test_a_connection_that_exceeds_several_limits_is_closed_once(guarded: Guarded) -> None:
    guarded.guard.disconnect(guarded.closing)
    assert guarded.client.recv(1) == b""
    # Calls that had arrived before are counted until gRPC has closed the socket.
    guarded.guard.disconnect(guarded.closing)

    async def look() -> None:
        guarded.guard.look()

    asyncio.run(look())
    assert guarded.connections.counts().closed == 1
    assert guarded.reported == [guarded.closing]


def test_a_connection_that_is_gone_is_not_closed(guarded: Guarded) -> None:
    guarded.accepted.close()
    guarded.guard.disconnect(guarded.closing)
    assert guarded.connections.counts().closed == 0
    assert guarded.reported == []
