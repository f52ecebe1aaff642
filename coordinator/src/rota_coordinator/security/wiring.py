"""Builds access control, TLS and connection limits from the options. Called by `program`."""

import argparse
import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from rota_coordinator.core.quotas import Quota
from rota_coordinator.runtime.clocks import elapsed_s, wall_s
from rota_coordinator.runtime.router import Service
from rota_coordinator.security.access_control import AccessControl
from rota_coordinator.security.api_server import ApiServer
from rota_coordinator.security.authenticator import (
    AnonymousAuthenticator,
    Authenticator,
    CertificateAuthenticator,
    PodAuthenticator,
    TokensAuthenticator,
)
from rota_coordinator.security.connections import Closing, Connections
from rota_coordinator.security.denials import Record
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.security.guard import ConnectionGuard
from rota_coordinator.security.policy import AllowAll, GrantPolicy, GroupPolicy, PodPolicy
from rota_coordinator.security.principals import Principals
from rota_coordinator.security.rejection_log import RejectionLog
from rota_coordinator.security.sockets import AcceptedSockets, raise_descriptor_limit
from rota_coordinator.security.tokens_file import TokensFile
from rota_service.pod_tokens import Pod
from rota_service.server_certificates import CertificateError, CertificateFiles, Certificates
from rota_service.token_review import ReviewClocks, ReviewPorts, ReviewUnavailable, TokenReviewer

# Seconds between checks of the tokens file, so a revoked grant or token remains valid for at most this long.
LOOK_AGAIN_S = 2
# Seconds for which a pod that is not known yet waits for the API server: below the time that a connection without an admitted call
# may last.
REVIEW_WAIT_S = 8.0
API_SERVER = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


@dataclass(frozen=True, slots=True)
class Security:
    """The security configuration of the process, from its flags and files."""

    authenticator: Authenticator
    policy: GroupPolicy
    credentials: grpc.ServerCredentials | None
    tokens: TokensFile | None
    connections: Connections
    report: Record
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
        await asyncio.gather(self.guard(access_control, port).run(), self.look_again(access_control))

    async def look_again(self, access_control: AccessControl) -> None:
        """
        Reload the tokens file when it changes, and record repeated refusals, until cancelled. Certificates are checked at every
        handshake.
        """
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            access_control.denials.flush()
            if self.tokens is not None:
                self.tokens.reload_if_changed()


def secure(options: argparse.Namespace, quota: Quota, report: Record) -> Security:
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
    tokens = TokensFile(Path(options.tokens_file), report) if options.tokens_file else None
    authenticator, policy = access(options, tokens, report)
    return Security(authenticator, policy, credentials, tokens, connections, report, quota)


def access(
    options: argparse.Namespace, tokens: TokensFile | None, report: Record
) -> tuple[Authenticator, GroupPolicy]:
    """Return how callers are authenticated, and what they may do. Raises `SecurityError`."""
    if options.token_review:
        reviewer = token_reviewer(Path(options.service_account_folder), report)
        found = Principals({}) if tokens is None else tokens
        policy = PodPolicy(found.grants_of, found.grants_of_pods, found.grants_in)
        return PodAuthenticator(reviewer, tokens), policy
    if tokens is not None:
        return TokensAuthenticator(tokens), GrantPolicy(tokens.grants_of)
    if options.tls_client_ca:
        return CertificateAuthenticator(), AllowAll()
    return AnonymousAuthenticator(), AllowAll()


def token_reviewer(folder: Path, report: Record) -> TokenReviewer[Pod]:
    """Return the reviewer of pods' tokens by the API server of this pod's cluster. Raises `SecurityError`."""
    host, port = (os.environ.get(name, "") for name in API_SERVER)
    if not host or not port.isdecimal():
        raise SecurityError(
            f"--token-review is for a pod in Kubernetes, where {' and '.join(API_SERVER)} are set; elsewhere use --tokens-file"
        )
    api_server = ApiServer(host, int(port), folder)
    failures = RejectionLog(report, "reviews of tokens failed")

    async def review(token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        try:
            return await api_server.review(token, audiences)
        except ReviewUnavailable as failure:
            failures.add(f"{host}:{port}", str(failure), elapsed_s())
            raise

    async def identify(pod: Pod) -> Pod:
        return pod

    return TokenReviewer(ReviewPorts(review, identify), ReviewClocks(elapsed_s, wall_s), REVIEW_WAIT_S)
