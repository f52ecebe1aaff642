"""Parses `bootstrap_servers`: `rota://host:port` for Rota's own log, `host:port` for Kafka."""

from collections.abc import Sequence

from rota import errors

SCHEME = "rota://"
KAFKA_SCHEME = "kafka://"
PORT = 7070
KAFKA_PORT = 9092


def address_of(bootstrap_servers: str | Sequence[str]) -> str:
    """Normalize addresses to one string, with the scheme `rota://` for Rota's log and none for Kafka."""
    if not isinstance(bootstrap_servers, str):
        bootstrap_servers = ",".join(bootstrap_servers)
    address = bootstrap_servers.strip().removeprefix(KAFKA_SCHEME)
    ours = address.startswith(SCHEME)
    given = address.replace(SCHEME, "")
    if "://" in given:
        raise errors.InvalidArgument(
            f"{bootstrap_servers!r} is not an address: use rota://host:{PORT}, or host:{KAFKA_PORT}"
        )
    names = _servers(given, PORT if ours else KAFKA_PORT)
    if ours and len(names) > 1:
        raise errors.InvalidArgument(
            f"{address} names several servers, but Rota's log has one address: use that one"
        )
    return (SCHEME if ours else "") + ",".join(names)


def is_rota(address: str) -> bool:
    """Return whether an address is that of Rota's own log."""
    return address.startswith(SCHEME)


def _servers(given: str, port: int) -> list[str]:
    """Return each server as host:port."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise errors.InvalidArgument(
            f"the address names no server: use rota://host:{PORT}, or host:{KAFKA_PORT}"
        )
    return [name if name.rpartition(":")[2].isdigit() else f"{name}:{port}" for name in names]
