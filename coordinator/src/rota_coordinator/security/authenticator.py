"""
Authentication of callers. Called by `access_control` once for each stream and for each unary call.

An implementation may await another system and cache its results for a while.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from typing_extensions import override

# SHA-256 of a token; tokens are compared and stored by it only.
Digest = NewType("Digest", bytes)
SCHEME = "bearer"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated identity; grants and quotas are keyed by its name."""

    name: str


class Unauthenticated(Exception):
    """The caller cannot be authenticated; the message is sent to the caller, and contains only its own data."""


class Peer(Protocol):
    """The credentials that a caller presents."""

    def authorization(self) -> Sequence[str]:
        """Return the values of the metadata `authorization`."""
        ...

    def certificate_names(self) -> Sequence[str]:
        """
        Return the names in the TLS certificate: subject alternative names, else the common name. Empty: no certificate.
        """
        ...


class Authenticator(Protocol):
    """Maps the credentials of a peer to a principal."""

    async def authenticate(self, peer: Peer) -> Principal:
        """Return the principal of the peer; raise `Unauthenticated` for invalid credentials."""
        ...


class AnonymousAuthenticator(Authenticator):
    """Authenticates every caller as `anonymous`: for loopback, or with --insecure."""

    PRINCIPAL = Principal("anonymous")

    @override
    async def authenticate(self, peer: Peer) -> Principal:
        return self.PRINCIPAL


class CertificateAuthenticator(Authenticator):
    """Authenticates the holder of a certificate of --tls-client-ca by its first name; TLS rejects other clients."""

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
        """Return the principal of the token."""
        ...

    def with_certificate(self, names: Sequence[str]) -> str | None:
        """Return the principal whose certificate has one of these names."""
        ...


class TokensAuthenticator(Authenticator):
    """Authenticates principals by the tokens and certificates of the tokens file."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    @override
    async def authenticate(self, peer: Peer) -> Principal:
        shown = peer.authorization()
        # An invalid token is rejected even with a valid certificate.
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
    """Return the digest by which a token is compared and kept."""
    return Digest(hashlib.sha256(token.encode()).digest())


def is_same(left: Digest, right: Digest) -> bool:
    """Compare digests in constant time."""
    return hmac.compare_digest(left, right)
