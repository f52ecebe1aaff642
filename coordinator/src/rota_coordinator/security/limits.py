"""

Limits on connections and calls, from the flag `--limits`. Pure.
They apply before a message is read, to every method; limits on groups, members and records are quotas.
"""

from dataclasses import dataclass, fields, replace

MIB = 1024 * 1024


class BadLimit(ValueError):
    """The value of `--limits` is invalid; the message states the problem and the expected form."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Invariant: every limit is at least 1."""

    # Open HTTP/2 streams of a connection: calls and Session streams.
    streams_per_connection: int = 1_000
    # Calls in progress of one principal (of one address, where callers are not authenticated), and of all.
    calls_per_identity: int = 8_000
    calls: int = 20_000
    # Connections on which a call of the principal (or of the address) was admitted.
    connections_per_identity: int = 10_000
    # Connections of one address on which no call was admitted yet.
    strangers_per_address: int = 256
    # Seconds after which a connection without an admitted call is closed.
    stranger_seconds: int = 10
    # Calls of one connection whose messages are read concurrently; gRPC buffers up to 4 MiB for each.
    reads_per_connection: int = 16
    # Seconds within which the message of a call must arrive after its headers.
    message_seconds: int = 10
    # Cancelled or refused calls of one connection per second.
    failed_calls_per_second: int = 1_000
    # Received bytes of incomplete messages, on one connection and on all connections together.
    unread_bytes_per_connection: int = 64 * MIB
    unread_bytes: int = 128 * MIB


def limit_names() -> list[str]:
    """Return the names that `--limits` accepts."""
    return [field.name.replace("_", "-") for field in fields(Limits)]


def parse_limits(text: str) -> Limits:
    """Parse `name=N,name=N`, with the fields of `Limits` as names, in hyphens. Raises `BadLimit`."""
    names = limit_names()
    changed: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        if name not in names:
            raise BadLimit(f'unknown limit "{name}"; expected one of {", ".join(names)}')
        if not value.isdecimal() or not value.isascii() or int(value) < 1:
            raise BadLimit(f'{name} is "{value}"; expected an integer of at least 1')
        changed[name.replace("-", "_")] = int(value)
    return replace(Limits(), **changed)
