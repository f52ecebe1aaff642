"""
Check that libpq verifies the server's certificate and host name on every connection to PostgreSQL on another host.

`program` calls `problem` before it opens the store, because the password and all committed offsets cross it.
`postgres_connection` calls `remedy` when a connection fails.
"""

import os
from pathlib import Path

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from rota_service.addresses import is_loopback_host

VERIFIED = "verify-full"


def problem(dsn: str) -> str:
    """Return the message that rejects the address without `--insecure`; empty when it is allowed."""
    host = unverified_host(dsn)
    if not host:
        return ""
    return (
        f"--store: PostgreSQL at {host} is on another host, and its certificate is not verified; add "
        f"?sslmode={VERIFIED}&sslrootcert=FILE to the address, or --insecure to allow it"
    )


def unverified_host(dsn: str) -> str:
    """
    Return the first host of the address that is reached over the network without `sslmode=verify-full`.

    What the address omits comes from the PG* variables, as libpq resolves them. The hosts of a service file are not
    looked up: they count as remote.
    """
    given = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    settings = {**from_variables(), **given}
    if settings.get("sslmode") == VERIFIED:
        return ""
    if service := given.get("service"):
        return f"service {service}"
    names, addresses = (settings.get(key, "").split(",") for key in ("host", "hostaddr"))
    return next((host for host in (addresses if any(addresses) else names) if not is_local(host)), "")


def from_variables() -> dict[str, str]:
    """Return libpq's defaults: the PG* variables, the service of PGSERVICE, then the compiled-in values."""
    found = {option.keyword.decode(): option.val for option in pq.Conninfo.get_defaults()}
    return {key: os.fsdecode(value) for key, value in found.items() if value is not None}


def is_local(host: str) -> bool:
    """Return whether the host is a Unix socket, which is also libpq's default, or a loopback address."""
    return not host or host.startswith("@") or Path(host).is_absolute() or is_loopback_host(host)


def remedy(failure: str) -> str:
    """Return the remedy for a connection that failed for this reason."""
    if "certificate" in failure:
        return "set sslrootcert=FILE to the certificate of its authority, and use a host name that its certificate contains"
    return "start it, or choose another one with --store"
