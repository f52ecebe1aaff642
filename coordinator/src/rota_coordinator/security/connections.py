"""

Accounting of the gRPC port's connections, and the decision which to close. Pure: time and byte counts are arguments.
In: `AccessControl` reports the begin, the message and the end of each call; the connection guard periodically reports
the open sockets and the bytes that each received. Out: the connections that the guard closes. A connection is a
stranger's until a call on it is admitted.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.security.limits import Limits

# Overhead bytes of a message on the wire: frames of gRPC and HTTP/2, headers, TLS records.
MESSAGE_OVERHEAD_BYTES = 512
# Bytes of a large message per additional byte of overhead.
BYTES_PER_OVERHEAD_BYTE = 100
# Bytes per second of pings and window updates that an idle client sends.
UPKEEP_BYTES_PER_SECOND = 1_024


class Closing(NamedTuple):
    """A connection to close, and the reason for the log."""

    peer: str
    reason: str


class ConnectionCounts(NamedTuple):
    """Numbers of connections by state."""

    # Open connections with an admitted call, and without one.
    admitted: int
    strangers: int
    # Connections closed because of a limit, since the process started.
    closed: int


@dataclass(slots=True)
class Connection:
    """
    One connection.

    Invariant: `unread_bytes` are the received bytes minus those of complete messages, never below 0.
    """

    address: str
    since_s: float
    # Identity of the first admitted call; empty for a stranger's connection.
    identity: str = ""
    # The kernel's count at the last observation.
    received_bytes: int = 0
    # Bytes of complete messages since the last observation.
    read_bytes: int = 0
    unread_bytes: int = 0
    # Calls that were cancelled or refused in the second that starts at `failed_since_s`.
    failed_calls: int = 0
    failed_since_s: float = 0.0


@dataclass(slots=True)
class Connections:
    """
    Every connection of which a call or an observation was reported.

    Invariant: `_calls` and `_admitted` count the calls in progress and the connections of each identity.
    """

    limits: Limits
    _open: dict[str, Connection] = field(default_factory=dict)
    _calls: Counter[str] = field(default_factory=Counter)
    _admitted: Counter[str] = field(default_factory=Counter)
    _calls_in_all: int = 0
    _observed_s: float = 0.0
    _closed: int = 0
    # Maximum connections of one identity, which leaves file descriptors for others.
    _share: int = sys.maxsize

    def counts(self) -> ConnectionCounts:
        """Return the numbers of open connections, and of those closed because of a limit."""
        admitted = self._admitted.total()
        return ConnectionCounts(admitted, len(self._open) - admitted, self._closed)

    def begin_call(self, peer: str, identity: str, now_s: float) -> str:
        """Count an authenticated call; return the message that refuses it, or an empty string if it is admitted."""
        connection = self._connection(peer, now_s)
        refusal = self._refusal(connection, identity)
        if refusal:
            return refusal
        if not connection.identity:
            connection.identity = identity
            self._admitted[identity] += 1
        self._calls[identity] += 1
        self._calls_in_all += 1
        return ""

    def end_call(self, identity: str) -> None:
        """Count the end of an admitted call."""
        self._calls_in_all -= 1
        self._calls[identity] -= 1
        if not self._calls[identity]:
            del self._calls[identity]

    def message_read(self, peer: str, size_bytes: int) -> None:
        """Count a complete message."""
        connection = self._open.get(peer)
        if connection is not None:
            overhead = MESSAGE_OVERHEAD_BYTES + size_bytes // BYTES_PER_OVERHEAD_BYTE
            connection.read_bytes += size_bytes + overhead

    def call_failed(self, peer: str, now_s: float) -> Closing | None:
        """Count a cancelled or refused call; return its connection if it has too many of them."""
        connection = self._connection(peer, now_s)
        if now_s - connection.failed_since_s >= 1:
            connection.failed_calls, connection.failed_since_s = 0, now_s
        connection.failed_calls += 1
        most = self.limits.failed_calls_per_second
        if connection.failed_calls != most + 1:
            return None
        return Closing(
            peer,
            f"more than {most} calls in a second were cancelled or refused (limit failed-calls-per-second)",
        )

    def observe(self, received: Mapping[str, int], now_s: float, room: int) -> list[Closing]:
        """
        Update the accounting from the open sockets, and return the connections to close.

        `received` maps each open connection to the bytes that the kernel received; `room` is the number of connections
        for which the process has file descriptors.
        """
        self._share = max(1, room // 2)
        self._follow(received, now_s)
        closing = {each.peer: each for each in reversed([*self._idle(now_s, room), *self._unread()])}
        return list(closing.values())

    def connection_closed(self) -> None:
        """Count a connection that was closed because of a limit: its calls that arrive later may exceed another one."""
        self._closed += 1

    def _connection(self, peer: str, now_s: float) -> Connection:
        return self._open.setdefault(peer, Connection(address_of(peer), now_s))

    def _follow(self, received: Mapping[str, int], now_s: float) -> None:
        for peer in self._open.keys() - received.keys():
            self._forget(peer)
        upkeep = int((now_s - self._observed_s) * UPKEEP_BYTES_PER_SECOND)
        self._observed_s = now_s
        for peer, count in received.items():
            if peer in self._open and count < self._open[peer].received_bytes:
                # A new connection from the same remote port.
                self._forget(peer)
            connection = self._connection(peer, now_s)
            arrived = count - connection.received_bytes - connection.read_bytes - upkeep
            connection.unread_bytes = max(0, connection.unread_bytes + arrived)
            connection.received_bytes, connection.read_bytes = count, 0

    def _forget(self, peer: str) -> None:
        identity = self._open.pop(peer).identity
        if identity:
            self._admitted[identity] -= 1
            if not self._admitted[identity]:
                del self._admitted[identity]

    def _refusal(self, connection: Connection, identity: str) -> str:
        most = self.limits
        if self._calls_in_all >= most.calls:
            return f"{most.calls} calls are in progress (limit calls); try again in a moment, or add a coordinator"
        if self._calls[identity] >= most.calls_per_identity:
            return (
                f"{identity} has {most.calls_per_identity} calls in progress (limit calls-per-identity); "
                "send requests on one Session stream, or raise the limit with --limits"
            )
        if connection.identity or self._admitted[identity] < min(most.connections_per_identity, self._share):
            return ""
        if self._share < most.connections_per_identity:
            return (
                f"{identity} has {self._share} connections, for which half of the process's file descriptors are used; "
                "share one among members, or allow the process more open files"
            )
        return (
            f"{identity} has {most.connections_per_identity} connections (limit connections-per-identity); "
            "share one among members, or raise the limit with --limits"
        )

    def _idle(self, now_s: float, room: int) -> Iterator[Closing]:
        """
        Yield strangers' connections: above the limit of their address, too old, then until there is room.

        The oldest go first, and of those observed at the same time the ones that have sent nothing: a client's call may
        have arrived and wait for its turn.
        """
        strangers = sorted(
            (each.since_s, each.received_bytes > 0, peer, each.address)
            for peer, each in self._open.items()
            if not each.identity
        )
        of_address = Counter(address for *_, address in strangers)
        most, others = self.limits, []
        for since_s, _, peer, address in strangers:
            if of_address[address] > most.strangers_per_address:
                limit = f"{most.strangers_per_address} such connections (limit strangers-per-address)"
                yield Closing(peer, f"its address has more than {limit}")
            elif now_s - since_s >= most.stranger_seconds:
                limit = f"{most.stranger_seconds} s (limit stranger-seconds)"
                yield Closing(peer, f"no call on it was admitted within {limit}")
            else:
                others.append(peer)
                continue
            of_address[address] -= 1
        excess = len(self._open) - (len(strangers) - len(others)) - room
        for peer in others[: max(0, excess)]:
            yield Closing(peer, "file descriptors are running out, and no call on it was admitted yet")

    def _unread(self) -> Iterator[Closing]:
        """
        Yield connections above the limit of unread bytes, then the largest ones until the rest is within the total.
        """
        most = self.limits.unread_bytes_per_connection
        excess = sum(each.unread_bytes for each in self._open.values()) - self.limits.unread_bytes
        if excess <= 0 and all(each.unread_bytes <= most for each in self._open.values()):
            return
        for peer, each in largest_first(self._open.items()):
            if each.unread_bytes > most:
                limit = f"at most {most} are allowed (limit unread-bytes-per-connection)"
            elif excess > 0:
                limit = (
                    f"at most {self.limits.unread_bytes} are allowed on all connections (limit unread-bytes)"
                )
            else:
                return
            excess -= each.unread_bytes
            yield Closing(
                peer, f"{each.unread_bytes} bytes of incomplete messages were received on it; {limit}"
            )


def largest_first(connections: Iterable[tuple[str, Connection]]) -> list[tuple[str, Connection]]:
    """Return the connections by unread bytes, the largest first."""
    return sorted(connections, key=lambda item: -item[1].unread_bytes)


def address_of(peer: str) -> str:
    """Return the address of a peer such as `ipv4:127.0.0.1:5000`, without its port."""
    return peer.rpartition(":")[0]
