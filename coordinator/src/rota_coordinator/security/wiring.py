"""Builds access control, TLS and connection limits from the options. Called by `program`."""

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from rota_coordinator.core.quotas import Quota
from rota_coordinator.runtime.router import Service
from rota_coordinator.security.access_control import AccessControl, RejectionLog
from rota_coordinator.security.authenticator import (
    AnonymousAuthenticator,
    Authenticator,
    CertificateAuthenticator,
    TokensAuthenticator,
)
from rota_coordinator.security.connections import Closing, Connections
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.security.guard import ConnectionGuard
from rota_coordinator.security.policy import AllowAll, GrantPolicy, GroupPolicy
from rota_coordinator.security.sockets import AcceptedSockets, raise_descriptor_limit
from rota_coordinator.security.tokens_file import TokensFile
from rota_service.server_certificates import CertificateError, CertificateFiles, Certificates

# Seconds between checks of the tokens file, so a revoked grant or token remains valid for at most this long.
LOOK_AGAIN_S = 2


@dataclass(frozen=True, slots=True)
class Security:
    """The security configuration of the process, from its flags and files."""

    authenticator: Authenticator
    policy: GroupPolicy
    credentials: grpc.ServerCredentials | None
    tokens: TokensFile | None
    connections: Connections
    report: Callable[[str], None]
    # Quota of principals without quota in the tokens file.
    quota: Quota

    def quota_of(self, principal: str) -> Quota:
        """Return the quota of the principal."""
        return self.quota if self.tokens is None else self.tokens.quota_of(principal, self.quota)

    def access_control(self, service: Service) -> AccessControl:
        """Return the access control in front of the router."""
        return AccessControl(service, self.authenticator, self.policy, self.report, self.connections)

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Open the server's port, and return its number."""
        if self.credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, self.credentials)

    def guard(self, access_control: AccessControl, port: int) -> ConnectionGuard:
        """Return the guard of the connections of the server's port."""
        closed = RejectionLog(self.report, "connections were closed")
        clock = asyncio.get_running_loop().time

        def report(closing: Closing) -> None:
            closed.add(closing.peer, closing.reason, clock())

        guard = ConnectionGuard(self.connections, AcceptedSockets(port), report)
        access_control.disconnect = guard.disconnect
        return guard

    async def keep(self, access_control: AccessControl, port: int) -> None:
        """Guard the port and follow the tokens file until cancelled."""
        await asyncio.gather(self.guard(access_control, port).run(), self.follow_tokens_file())

    async def follow_tokens_file(self) -> None:
        """Reload the tokens file when it changes, until cancelled. Certificates are checked at every handshake."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            if self.tokens is not None:
                self.tokens.reload_if_changed()


def secure(options: argparse.Namespace, quota: Quota, report: Callable[[str], None]) -> Security:
    """Build the security configuration; raise `SecurityError` when a file is invalid."""
    raise_descriptor_limit()
    connections = Connections(options.limits)
    credentials = None
    if options.tls_cert:
        client_ca = Path(options.tls_client_ca) if options.tls_client_ca else None
        files = CertificateFiles(Path(options.tls_cert), Path(options.tls_key), client_ca)
        try:
            credentials = Certificates(files, report).credentials()
        except CertificateError as error:
            raise SecurityError(str(error)) from None
    if options.tokens_file:
        tokens = TokensFile(Path(options.tokens_file), report)
        return Security(
            TokensAuthenticator(tokens),
            GrantPolicy(tokens.grants_of),
            credentials,
            tokens,
            connections,
            report,
            quota,
        )
    authenticator: Authenticator = (
        CertificateAuthenticator() if options.tls_client_ca else AnonymousAuthenticator()
    )
    return Security(authenticator, AllowAll(), credentials, None, connections, report, quota)
