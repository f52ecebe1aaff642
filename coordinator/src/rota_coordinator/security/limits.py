"""
The bounds on connections and calls, from the flag `--limits`. Pure.

They hold before a message is read, whatever method is called; bounds on groups, members and records are quotas.
"""

from dataclasses import dataclass, fields, replace

MIB = 1024 * 1024


class BadLimit(ValueError):
    """The text of `--limits` is not usable; the message says why and what to write."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Invariant: every bound is at least 1."""

    # HTTP/2 streams that a connection may have open: calls and Session streams.
    streams_per_connection: int = 1_000
    # Calls in progress of one principal (of one address, where callers are not authenticated), and of all.
    calls_per_identity: int = 8_000
    calls: int = 20_000
    # Connections on which a call of the principal (or of the address) was admitted.
    connections_per_identity: int = 10_000
    # Connections of one address on which no call was admitted yet.
    strangers_per_address: int = 256
    # How long a connection may last without an admitted call.
    stranger_seconds: int = 10
    # Calls of one connection whose messages are read at the same time; gRPC buffers up to 4 MiB for each.
    reads_per_connection: int = 16
    # How long the message of a call may take to arrive after its headers.
    message_seconds: int = 10
    # Calls of one connection that are cancelled or refused in a second.
    failed_calls_per_second: int = 1_000
    # Bytes that arrived and are not part of a complete message, on one connection and on all of them.
    unread_bytes_per_connection: int = 64 * MIB
    unread_bytes: int = 128 * MIB


def limit_names() -> list[str]:
    """Return the names that `--limits` takes."""
    return [field.name.replace("_", "-") for field in fields(Limits)]


def parse_limits(text: str) -> Limits:
    """Parse `name=N,name=N`; names are those of `Limits`, with hyphens. Raises `BadLimit`."""
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
