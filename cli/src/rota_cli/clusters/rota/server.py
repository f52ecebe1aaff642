"""
Calls to Rota's servers: TLS, credentials and translation of errors.

The group's coordinator may be another process than the given server: `ask_coordinator` finds it, and retries answers that
say "not yet" until the timeout.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import grpc

from rota import errors
from rota.addresses import SCHEME
from rota_cli.clusters.clocks import Clocks
from rota_cli.clusters.connection import Connection
from rota_cli.errors import Failure, NotReachable
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub

OPTIONS = (
    # Maximum message size of the servers.
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_send_message_length", 4 << 20),
    # Keepalive: a watch notices within 20 s that its server has vanished.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
)
RETRIABLE_CODES = (pb.COORDINATOR_LOAD_IN_PROGRESS, pb.COORDINATOR_NOT_AVAILABLE)
RETRY_INTERVAL_S = 0.1
# gRPC reports a failed TLS handshake as UNAVAILABLE with one of these details.
UNTRUSTED_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed")
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
HTTP = ("http1.x server",)
INVALID_CERTIFICATE_FILES = ("Failed to create security handshaker",)

Code = grpc.StatusCode
Metadata = tuple[tuple[str, str | bytes], ...]
Request = TypeVar("Request")
Request_contra = TypeVar("Request_contra", contravariant=True)
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


class Call(Protocol[Request_contra, Answer_co]):
    """A unary call of a gRPC stub."""

    def __call__(self, request: Request_contra, *, timeout: float, metadata: Metadata) -> Answer_co: ...


Method = Callable[[grpc.Channel], Call[Request, Answer]]
"""Of a channel: the call."""


class RotaServer:
    """The given server and the coordinators that it names; one channel for each address."""

    def __init__(self, connection: Connection, address: str, clocks: Clocks) -> None:
        self.address = address.removeprefix(SCHEME)
        self.timeout_s = connection.timeout_s
        self.clocks = clocks
        self._connection = connection
        self._channels: dict[str, grpc.Channel] = {}

    def channel(self, address: str = "") -> grpc.Channel:
        """Return the channel to that address, by default to the given server; it connects on the first call."""
        address = address or self.address
        if address not in self._channels:
            self._channels[address] = self._open(address)
        return self._channels[address]

    def _open(self, address: str) -> grpc.Channel:
        trusted = self._connection.trusted_ca_file
        if trusted is None:
            return grpc.insecure_channel(address, options=OPTIONS)
        credentials = grpc.ssl_channel_credentials(
            _read_file(trusted),
            _read_file(self._connection.key_file),
            _read_file(self._connection.certificate_file),
        )
        return grpc.secure_channel(address, credentials, options=OPTIONS)

    def metadata(self) -> Metadata:
        """Return the metadata of every call: the bearer token, if any."""
        token = _read_file(self._connection.token_file)
        return () if token is None else (("authorization", f"Bearer {token.decode().strip()}"),)

    def ask(self, method: Method[Request, Answer], request: Request, address: str = "") -> Answer:
        """Call once and return the answer; raise the translated error."""
        call = method(self.channel(address))
        try:
            return call(request, timeout=self.timeout_s, metadata=self.metadata())
        except grpc.RpcError as error:
            raise self.translate_error(error, address) from None

    def ask_coordinator(
        self,
        group_id: str,
        method: Method[Request, Answer],
        request: Request,
        code_of: Callable[[Answer], int],
    ) -> tuple[str, Answer]:
        """Call the group's coordinator; follow moves and retry while it loads, until the timeout. Return address and answer."""
        deadline_s = self.clocks.monotonic_s() + self.timeout_s
        address = self.address
        while True:
            answer = self.ask(method, request, address)
            code = code_of(answer)
            if code == pb.NOT_COORDINATOR:
                address = self.find_coordinator(group_id)
            elif code not in RETRIABLE_CODES:
                return address, answer
            if self.clocks.monotonic_s() + RETRY_INTERVAL_S > deadline_s:
                raise errors.error_of(code, f"group {group_id} at {address}")
            threading.Event().wait(RETRY_INTERVAL_S)

    def find_coordinator(self, group_id: str) -> str:
        """Return the address of a group's coordinator."""
        request = pb.FindCoordinatorRequest(group_ids=[group_id])
        (found,) = self.ask(lambda channel: CoordinatorStub(channel).FindCoordinator, request).coordinators
        # No owner while the slot moves between coordinators.
        return found.address or self.address

    def translate_error(self, error: grpc.RpcError, address: str = "") -> Exception:
        """Translate a gRPC error into one with a remedy."""
        address = address or self.address
        code, said = error.code(), (error.details() or "no reason given").strip()
        match code:
            case Code.UNAVAILABLE:
                return self._unavailable(address, said)
            case Code.DEADLINE_EXCEEDED:
                return NotReachable(
                    f"{address} did not answer within {self.timeout_s:g} s: check that it is running and not overloaded, or raise --timeout"
                )
            case Code.UNAUTHENTICATED:
                return Failure(
                    f"{address} rejected the credentials ({said}): pass a valid token (--token-file) or client certificate "
                    "(--tls-cert)"
                )
            case Code.UNIMPLEMENTED:
                return Failure(
                    f"{address} does not implement this call: it is not a Rota coordinator, is older than this command, or "
                    "runs without a log (start it with --log)"
                )
            case Code.RESOURCE_EXHAUSTED:
                return Failure(f"{address} rejected the request: {said}")
            case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE | Code.FAILED_PRECONDITION:
                return Failure(
                    f"{address} rejected the request ({said}): check that both sides run the same version"
                )
            case _:
                return Failure(
                    f"the call to {address} failed with {code.name} ({said}): see the server's log"
                )

    def _unavailable(self, address: str, said: str) -> Exception:
        connection = self._connection
        if any(word in said for word in UNTRUSTED_CERTIFICATE):
            return Failure(
                f"the certificate of {address} is not trusted: check {connection.ca_file or 'the system CA bundle'} "
                "(--tls-ca), and that the certificate is valid for this address"
            )
        if any(word in said for word in NO_TLS):
            return Failure(f"{address} does not speak TLS: omit the TLS flags, or use a TLS port")
        if any(word in said for word in INVALID_CERTIFICATE_FILES):
            files = (connection.ca_file, connection.certificate_file, connection.key_file)
            named = ", ".join(str(file) for file in files if file is not None)
            return Failure(
                f"invalid certificate files {named}: expected PEM files, and a key that matches its certificate"
            )
        if any(word in said for word in HTTP):
            return NotReachable(f"{address} speaks HTTP, not gRPC: use Rota's gRPC port, 7070 by default")
        if connection.tls:
            advice = (
                "check that it is running and whether it requires another client certificate (--tls-cert)"
            )
        else:
            advice = "check that it is running (see `rota doctor`) and whether it requires TLS (--tls-ca)"
        return NotReachable(f"cannot connect to {address}: {advice}")

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()


def _read_file(file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise Failure(f"cannot read {file} ({reason}): check that it exists and is readable") from error
