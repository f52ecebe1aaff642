"""Channels to Rota's servers: whom we trust, what we show, and what a failed call means. For both adapters beside it."""

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
    # Without the second one a silent peer is noticed after a minute, whatever the first one says.
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    # Whoever asks decides when to ask again.
    ("grpc.enable_retries", 0),
    # Channels to one address would else share their connection, and the waiting after a failure with it.
    ("grpc.use_local_subchannel_pool", 1),
)
# How gRPC words a handshake that failed: as UNAVAILABLE, with words for people.
DISTRUST = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed")
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
UNUSABLE_FILES = ("Failed to create security handshaker",)
# What stands before the reason in gRPC's sentences: layers, and addresses that we name ourselves.
LAYERS = re.compile(r".*last error: |UNKNOWN: |UNAVAILABLE: |ipv[46]:\S+: |.*OPENSSL_internal:")

Code = grpc.StatusCode
Failure = Unreachable | Refused
Request_contra = TypeVar("Request_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Metadata = Sequence[tuple[str, str]]


class Call(Protocol[Request_contra, Answer_co]):
    """One of a stub's calls."""

    def __call__(
        self, request: Request_contra, *, timeout: float, metadata: Metadata
    ) -> Awaitable[Answer_co]: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the sidecar shows, and whom it trusts: files, read anew for every connection, and the token for every call."""

    # False: plain text. With TLS and no `ca_file` the system's authorities are trusted.
    tls: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None


def target_of(address: str) -> str:
    """What gRPC dials."""
    return address.removeprefix(SCHEME).rstrip("/")


def open_channel(address: str, credentials: Credentials) -> grpc.aio.Channel:
    """A channel; nothing is dialled yet. Raises Refused when a file cannot be read."""
    if not credentials.tls:
        return grpc.aio.insecure_channel(target_of(address), options=OPTIONS)
    secure = grpc.ssl_channel_credentials(
        content(credentials.ca_file), content(credentials.key_file), content(credentials.certificate_file)
    )
    return grpc.aio.secure_channel(target_of(address), secure, options=OPTIONS)


def metadata_of(credentials: Credentials) -> Metadata:
    """What goes with every call. Raises Refused when the token cannot be read."""
    token = content(credentials.token_file)
    if token is None:
        return ()
    text = token.decode(errors="replace").strip()
    if not text or not text.isascii() or not text.isprintable():
        raise Refused(f"{credentials.token_file} holds no token: write it there, as one line of ASCII")
    return (("authorization", f"Bearer {text}"),)


def content(file: Path | None) -> bytes | None:
    """What the file holds now; raises Refused."""
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise Refused(
            f"{file}, a file of the credentials, cannot be read ({reason}): see that it is there, and readable"
        ) from None


@dataclass(frozen=True, slots=True)
class RpcClient:
    """Whom to ask, as whom, and for how long to wait."""

    address: str
    credentials: Credentials
    within_s: float
    # What it means that nobody there knows the call.
    unknown_call: str = "is no coordinator of Rota that knows this call: check the address, and its version"

    async def call(self, method: Call[Request, Answer], request: Request) -> Answer:
        """The answer, once. Raises Unreachable, Refused."""
        metadata = metadata_of(self.credentials)
        try:
            return await method(request, timeout=max(self.within_s, 0.001), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self.failure(error.code(), error.details() or "") from None
        except asyncio.CancelledError:
            # gRPC cancels calls when their channel is closed; who asked is not cancelled by that.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unreachable(
                f"the connection to {target_of(self.address)} was given up: ask again"
            ) from None

    def failure(self, code: grpc.StatusCode, said: str) -> Failure:
        """What a call that ended so means."""
        address = target_of(self.address)
        match code:
            case Code.UNAUTHENTICATED:
                return Refused(
                    f"{address} does not know us ({said}): give it a token or a client certificate that it knows"
                )
            case Code.PERMISSION_DENIED:
                return Refused(f"{address} forbids it ({said}): grant it to this client")
            case Code.DEADLINE_EXCEEDED:
                return silent(address, self.within_s)
            case Code.RESOURCE_EXHAUSTED:
                return Unreachable(f"{address} refuses for now ({said}): it is asked again later")
            case Code.UNIMPLEMENTED:
                return Refused(f"{address} {self.unknown_call}")
            case Code.UNAVAILABLE:
                return unavailable(address, self.credentials, said)
            case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE | Code.FAILED_PRECONDITION:
                return Refused(
                    f"{address} refuses the request ({said}): see whether both have the same version"
                )
            case _:
                return Unreachable(f"{address} ended the call with {code.name} ({said}): see its log")


def silent(address: str, within_s: float) -> Unreachable:
    """Time is up."""
    return Unreachable(
        f"{address} did not answer within {within_s:.3g} s: see whether it runs, and is not overloaded"
    )


def unavailable(address: str, credentials: Credentials, said: str) -> Failure:
    """Why no connection comes about; whom certificates keep out, they keep out the next time too."""
    reason = reason_of(said)
    if any(word in said for word in DISTRUST):
        authority = credentials.ca_file or "the CA file"
        return Refused(
            f"the certificate of {address} is not trusted ({reason}): "
            f"check {authority}, and that the address is one of the certificate's names"
        )
    if any(word in said for word in NO_TLS):
        return Refused(f"{address} does not speak TLS ({reason}): leave TLS away, or dial a port that has it")
    if any(word in said for word in UNUSABLE_FILES):
        files = (credentials.ca_file, credentials.certificate_file, credentials.key_file)
        named = ", ".join(str(file) for file in files if file is not None)
        return Refused(
            f"{named}: no certificates, or not with their key; give PEM files that belong together"
        )
    if credentials.tls:
        advice = "see whether it runs, and whether it asks for another client certificate"
    else:
        advice = "see whether it runs, and whether it wants TLS"
    return Unreachable(f"{address} cannot be reached ({reason}): {advice}")


def reason_of(said: str) -> str:
    """gRPC's sentence without what it says of itself."""
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
    What the first address gives that gives anything; each may take its share of what is left of the time.

    Raises Refused when all of them refuse, else Unreachable.
    """
    deadline_s = clock() + within_s
    failures: list[Failure] = []
    for number, address in enumerate(addresses):
        try:
            return await ask(address, (deadline_s - clock()) / (len(addresses) - number))
        except (Unreachable, Refused) as failure:
            failures.append(failure)
    message = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    refused = all(isinstance(failure, Refused) for failure in failures)
    raise (Refused if refused else Unreachable)(message)
