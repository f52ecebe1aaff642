"""
Who a caller is. Asked by the door, once for each stream and for each single call.

An implementation may wait for another system, and remember what that said for a while: the operator's will.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from typing_extensions import override

# SHA-256 of a token: what is compared, and kept.
Digest = NewType("Digest", bytes)
SCHEME = "bearer"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who somebody was found to be."""

    name: str


class Unauthenticated(Exception):
    """Nobody knows the caller; the message is for it, and holds nothing that it did not say itself."""


class Peer(Protocol):
    """What a caller shows of itself."""

    def authorization(self) -> Sequence[str]:
        """The values of the metadata `authorization`."""
        ...

    def certificate_names(self) -> Sequence[str]:
        """The names in its TLS certificate: the alternative ones, else the common name. Empty without one."""
        ...


class Authenticator(Protocol):
    """Finds out who calls."""

    async def authenticate(self, peer: Peer) -> Principal:
        """Who it is; raises `Unauthenticated`."""
        ...


class AnonymousAuthenticator(Authenticator):
    """Everybody is the same nobody: on loopback, or where somebody said --insecure."""

    PRINCIPAL = Principal("anonymous")

    @override
    async def authenticate(self, peer: Peer) -> Principal:
        return self.PRINCIPAL


class CertificateAuthenticator(Authenticator):
    """Whoever has a certificate of --tls-client-ca, under its first name. TLS has let nobody else in."""

    @override
    async def authenticate(self, peer: Peer) -> Principal:
        for name in peer.certificate_names():
            return Principal(name)
        raise Unauthenticated(
            "the client certificate has no name; use a certificate with a subject alternative name"
        )


class Credentials(Protocol):
    """The principals of the tokens file, as it was last read."""

    def with_token(self, digest: Digest) -> str | None:
        """Whose token that is."""
        ...

    def with_certificate(self, names: Sequence[str]) -> str | None:
        """Whose certificate has one of these names."""
        ...


class TokensAuthenticator(Authenticator):
    """Principals with tokens or certificates that stand in a file."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    @override
    async def authenticate(self, peer: Peer) -> Principal:
        shown = peer.authorization()
        # A token that is wrong is never made good by a certificate that is right.
        name = (
            self._with_token(shown) if shown else self._credentials.with_certificate(peer.certificate_names())
        )
        if name is None and shown:
            raise Unauthenticated("unknown token; check the coordinator's tokens file")
        if name is None:
            raise Unauthenticated("the call has no token; send the metadata 'authorization: Bearer TOKEN'")
        return Principal(name)

    def _with_token(self, shown: Sequence[str]) -> str | None:
        if len(shown) > 1:
            raise Unauthenticated(f"{len(shown)} values of 'authorization' in the call; send exactly one")
        scheme, _, token = shown[0].partition(" ")
        if scheme.lower() != SCHEME or not token.strip():
            raise Unauthenticated("the metadata 'authorization' must have the form 'Bearer TOKEN'")
        return self._credentials.with_token(digest_of(token.strip()))


def digest_of(token: str) -> Digest:
    """What stands for a token wherever it is compared."""
    return Digest(hashlib.sha256(token.encode()).digest())


def is_same(left: Digest, right: Digest) -> bool:
    """Whether they are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(left, right)
