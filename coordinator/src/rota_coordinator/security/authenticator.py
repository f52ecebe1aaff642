"""
Authentication of callers. Called by `access_control` once for each stream and for each unary call, and again for those that last
longer than the authentication is valid.

An implementation may await another system and cache its results for a while: `PodAuthenticator` asks the Kubernetes API server.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from typing_extensions import override

from rota_coordinator.security.service_accounts import user_of
from rota_service.pod_tokens import Pod
from rota_service.token_review import TokenReviewer, Unauthenticated

# SHA-256 of a token; tokens are compared and stored by it only.
Digest = NewType("Digest", bytes)
SCHEME = "bearer"
NO_TOKEN = "the call has no token; send the metadata 'authorization: Bearer TOKEN'"


@dataclass(frozen=True, slots=True)
class Principal:
    """
    An authenticated identity; grants and quotas are keyed by its name.

    Invariant: nothing of it is known from a request.
    """

    name: str
    # The pod, if Kubernetes authenticated it.
    pod: Pod | None = None
    # Seconds for which this may be relied on; then the call is authenticated again. None: as long as the call lasts.
    valid_for_s: float | None = None

    @property
    def pod_name(self) -> str:
        """Return the name of the pod as namespace/name; empty: it is none."""
        return "" if self.pod is None else f"{self.pod.namespace}/{self.pod.name}"


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

    def address(self) -> str:
        """Return the address that the call came from, without its port."""
        ...


class Authenticator(Protocol):
    """Maps the credentials of a peer to a principal."""

    async def authenticate(self, peer: Peer) -> Principal:
        """
        Return the principal of the peer. Raises `Unauthenticated` for invalid credentials, with a message for the caller;
        `AuthenticationUnavailable` when they cannot be checked now.
        """
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
        token = bearer_token(peer)
        # An invalid token is rejected even with a valid certificate.
        if token:
            name = self._credentials.with_token(digest_of(token))
        else:
            name = self._credentials.with_certificate(peer.certificate_names())
        if name is None:
            raise Unauthenticated("unknown token; check the coordinator's tokens file" if token else NO_TOKEN)
        return Principal(name)


class PodAuthenticator(Authenticator):
    """Authenticates pods by their service account tokens, and other clients by the tokens file, if there is one."""

    def __init__(self, reviewer: TokenReviewer[Pod], credentials: Credentials | None) -> None:
        self._reviewer = reviewer
        self._credentials = credentials

    @override
    async def authenticate(self, peer: Peer) -> Principal:
        token = bearer_token(peer)
        name = self._with_own_credentials(peer, token)
        if name is not None:
            return Principal(name)
        if not token:
            raise Unauthenticated(NO_TOKEN)
        found = await self._reviewer.authenticate(token, peer.address())
        return Principal(user_of(found.identity), found.identity, found.valid_for_s)

    def _with_own_credentials(self, peer: Peer, token: str) -> str | None:
        if self._credentials is None:
            return None
        if token:
            return self._credentials.with_token(digest_of(token))
        return self._credentials.with_certificate(peer.certificate_names())


def bearer_token(peer: Peer) -> str:
    """Return the token of a call; empty if it has none. Raises `Unauthenticated` for several, or another scheme."""
    shown = peer.authorization()
    if not shown:
        return ""
    if len(shown) > 1:
        raise Unauthenticated(f"{len(shown)} values of 'authorization' in the call; send exactly one")
    scheme, _, token = shown[0].partition(" ")
    if scheme.lower() != SCHEME or not token.strip():
        raise Unauthenticated("the metadata 'authorization' must have the form 'Bearer TOKEN'")
    return token.strip()


def digest_of(token: str) -> Digest:
    """Return the digest by which a token is compared and kept."""
    return Digest(hashlib.sha256(token.encode()).digest())


def is_same(left: Digest, right: Digest) -> bool:
    """Compare digests in constant time."""
    return hmac.compare_digest(left, right)
