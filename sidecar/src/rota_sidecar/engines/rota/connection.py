"""gRPC channels to Rota's servers: credentials, unary calls, and the meaning of their status codes."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from rota_sidecar.engines.port import Refused, Unreachable

SCHEME = "rota://"
MESSAGE_BYTES_MAX = 4 << 20
KEEPALIVE_MS = 10_000
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    # Without the second option a silent peer is detected after a minute, whatever the first one is.
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    # Callers decide about retries.
    ("grpc.enable_retries", 0),
    # Otherwise channels to one address share a connection, and its backoff after a failure.
    ("grpc.use_local_subchannel_pool", 1),
)
# Texts in gRPC's details of a failed handshake, which has the status UNAVAILABLE like every other failed connection.
DISTRUST = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed")
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
UNUSABLE_FILES = ("Failed to create security handshaker",)
# What gRPC itself says, as INTERNAL, when a message could not be written because the connection had just been lost.
LOST_WHILE_WRITING = "Internal error from Core"
# Prefixes of the reason in gRPC's details: layers, and addresses that Rota's message names already.
LAYERS = re.compile(r".*last error: |UNKNOWN: |UNAVAILABLE: |ipv[46]:\S+: |.*OPENSSL_internal:")

Code = grpc.StatusCode


class Distrusted(Refused):
    """The server's certificate is not trusted: a wrong file, or an authority whose successor is not in the file yet."""


Failure = Unreachable | Refused
Request_contra = TypeVar("Request_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Metadata = Sequence[tuple[str, str]]


class Call(Protocol[Request_contra, Answer_co]):
    """A unary method of a stub."""

    def __call__(
        self, request: Request_contra, *, timeout: float, metadata: Metadata
    ) -> Awaitable[Answer_co]: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files with certificates, read for each connection, and with a bearer token, read for each call."""

    # False: plain text. With TLS and no `ca_file` the authorities of the operating system are trusted.
    tls: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None


def target_of(address: str) -> str:
    """Return the gRPC target of a `rota://` address."""
    return address.removeprefix(SCHEME).rstrip("/")


def open_channel(address: str, credentials: Credentials) -> grpc.aio.Channel:
    """Create a channel, which connects with its first call. Raises Refused if a file cannot be read."""
    if not credentials.tls:
        return grpc.aio.insecure_channel(target_of(address), options=OPTIONS)
    secure = grpc.ssl_channel_credentials(
        content(credentials.ca_file), content(credentials.key_file), content(credentials.certificate_file)
    )
    return grpc.aio.secure_channel(target_of(address), secure, options=OPTIONS)


def metadata_of(credentials: Credentials) -> Metadata:
    """Return the metadata of a call. Raises Refused if the token cannot be read."""
    token = content(credentials.token_file)
    if token is None:
        return ()
    text = token.decode(errors="replace").strip()
    if not text or not text.isascii() or not text.isprintable():
        raise Refused(f"{credentials.token_file} has no token; write it there as one line of ASCII")
    return (("authorization", f"Bearer {text}"),)


def content(file: Path | None) -> bytes | None:
    """Read a file. Raises Refused."""
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise Refused(
            f"the credentials file {file} cannot be read ({reason}); check that it exists and is readable"
        ) from None


@dataclass(frozen=True, slots=True)
class RpcClient:
    """A client of unary calls: a server's address, the credentials and the timeout of each call in seconds."""

    address: str
    credentials: Credentials
    within_s: float
    # The message for the status UNIMPLEMENTED, after the address.
    unknown_call: str = (
        "does not implement this call of Rota's coordinator; check the address, and its version"
    )

    async def call(self, method: Call[Request, Answer], request: Request) -> Answer:
        """Call once, without retries. Raises Unreachable, Refused."""
        metadata = metadata_of(self.credentials)
        try:
            return await method(request, timeout=max(self.within_s, 0.001), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self.failure(error.code(), error.details() or "") from None
        except asyncio.CancelledError:
            # gRPC cancels the calls of a channel that is closed; the calling task is not cancelled by that.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unreachable(
                f"the connection to {target_of(self.address)} was closed by this client; retry"
            ) from None

    def failure(self, code: grpc.StatusCode, said: str) -> Failure:
        """Return the failure for a status code and its details."""
        address = target_of(self.address)
        if is_lost(code, said):
            return unavailable(address, self.credentials, said)
        match code:
            case Code.UNAUTHENTICATED:
                return Refused(
                    f"{address} cannot authenticate this client ({said}); give a valid token or client certificate"
                )
            case Code.PERMISSION_DENIED:
                return Refused(f"{address} denies access ({said}); grant it to this client")
            case Code.DEADLINE_EXCEEDED:
                return silent(address, self.within_s)
            case Code.RESOURCE_EXHAUSTED:
                return Unreachable(f"{address} has reached a limit ({said}); retrying later")
            case Code.UNIMPLEMENTED:
                return Refused(f"{address} {self.unknown_call}")
            case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE | Code.FAILED_PRECONDITION:
                return Refused(
                    f"{address} rejects the request ({said}); check that both have the same version"
                )
            case _:
                return Unreachable(f"{address} ended the call with {code.name} ({said}); see its log")


def is_lost(code: grpc.StatusCode, said: str) -> bool:
    """Return whether a call ended because its connection was lost or not made, by its status and details."""
    return code is Code.UNAVAILABLE or (code is Code.INTERNAL and said == LOST_WHILE_WRITING)


def silent(address: str, within_s: float) -> Unreachable:
    """Return the failure for a timeout."""
    return Unreachable(
        f"{address} did not answer within {within_s:.3g} s; check that it is running and not overloaded"
    )


def unavailable(address: str, credentials: Credentials, said: str) -> Failure:
    """Return the failure for the status UNAVAILABLE: Refused for errors of certificates, else Unreachable."""
    reason = reason_of(said)
    if any(word in said for word in DISTRUST):
        authority = credentials.ca_file or "the CA file"
        return Distrusted(
            f"the certificate of {address} is not trusted ({reason}); "
            f"check {authority}, and that the address is one of the certificate's names"
        )
    if any(word in said for word in NO_TLS):
        return Refused(f"{address} has no TLS ({reason}); omit TLS, or use a port that has it")
    if any(word in said for word in UNUSABLE_FILES):
        files = (credentials.ca_file, credentials.certificate_file, credentials.key_file)
        named = ", ".join(str(file) for file in files if file is not None)
        return Refused(f"{named}: not certificates with their key; give matching PEM files")
    if credentials.tls:
        advice = "check that it is running, and whether it requires another client certificate"
    else:
        advice = "check that it is running, and whether it requires TLS"
    return Unreachable(f"{address} cannot be reached ({reason}); {advice}")


def reason_of(said: str) -> str:
    """Return the reason in gRPC's details, without the names of its layers."""
    while (layer := LAYERS.match(said)) is not None:
        said = said[layer.end() :]
    return said.removesuffix(": OK").strip().rstrip(".") or "no reason given"


async def first_of(
    addresses: Sequence[str],
    ask: Callable[[str, float], Awaitable[Answer]],
    within_s: float,
    clock: Callable[[], float],
) -> Answer:
    """
    Return the first successful result of `ask`, in order of addresses; each call gets its share of the remaining time.

    Raises Distrusted if all calls do, else Refused if all calls do, else Unreachable.
    """
    deadline_s = clock() + within_s
    failures: list[Failure] = []
    for number, address in enumerate(addresses):
        try:
            return await ask(address, (deadline_s - clock()) / (len(addresses) - number))
        except (Unreachable, Refused) as failure:
            failures.append(failure)
    message = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    for kind in (Distrusted, Refused):
        if all(isinstance(failure, kind) for failure in failures):
            raise kind(message)
    raise Unreachable(message)
