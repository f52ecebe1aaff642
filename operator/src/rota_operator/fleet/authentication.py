"""
The port through which the Fleet server authenticates sidecars.

The local runner compares the token with the one that it issued to each replica; the cluster operator asks the API server.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from rota_operator.fleet.principal import Principal

BEARER = "Bearer "


class Unauthenticated(Exception):
    """The token is not one of a sidecar; the message says why and what to do, and contains no token."""


class AuthenticationUnavailable(Exception):
    """The token can be neither accepted nor rejected now; the sidecar should try again."""


# Returns the sidecar that a token belongs to. Raises Unauthenticated, AuthenticationUnavailable.
Authenticate: TypeAlias = Callable[[str], Awaitable[Principal]]


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the bearer token of a call; empty if there is none, or more than one."""
    found = [value for name, value in metadata if name == "authorization"]
    if len(found) != 1 or not isinstance(found[0], str):
        return ""
    return found[0].removeprefix(BEARER) if found[0].startswith(BEARER) else ""
