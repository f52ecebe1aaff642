"""
The port through which the Fleet server authenticates sidecars.

The local runner compares the token with the one that it issued to each replica; the cluster operator asks the API server.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from rota_operator.fleet.principal import Principal

BEARER = "Bearer "
# Returns the sidecar that a token belongs to. Raises Unauthenticated, AuthenticationUnavailable of rota_service.
Authenticate: TypeAlias = Callable[[str], Awaitable[Principal]]


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the bearer token of a call; empty if there is none, or more than one."""
    found = [value for name, value in metadata if name == "authorization"]
    if len(found) != 1 or not isinstance(found[0], str):
        return ""
    return found[0].removeprefix(BEARER) if found[0].startswith(BEARER) else ""
