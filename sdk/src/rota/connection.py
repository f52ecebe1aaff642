"""
Connections to a `rota://` server, used by every client class of this package.

All of them run on one event loop: an asynchronous application's own, else that of one background thread that the whole
process shares (gRPC's asyncio implementation misbehaves with several loops).
"""

import asyncio
import os
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

import grpc
import grpc.aio

from rota import errors
from rota.addresses import SCHEME
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log.v1.log_pb2_grpc import LogStub
from rota_service.addresses import is_loopback
from rota_service.file_versions import Version, version_of

if TYPE_CHECKING:
    from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorAsyncStub
    from rota_proto.log.v1.log_pb2_grpc import LogAsyncStub

# Files with the certificate authority and with the token of Rota's servers, for clients without credentials of their own.
TLS_CA_VARIABLE, TOKEN_FILE_VARIABLE = "ROTA_TLS_CA", "ROTA_TOKEN_FILE"
CREDENTIAL_VARIABLES = frozenset({TLS_CA_VARIABLE, TOKEN_FILE_VARIABLE})
MESSAGE_BYTES_MAX = 4 << 20
# Seconds for which the calls in progress may end on a channel that another one has replaced.
REPLACED_S = 60.0
KEEPALIVE_MS = 10_000
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 1.0

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    # Reconnect backoff as short as our own retries: gRPC's default grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
"""Options of every channel."""

Result = TypeVar("Result")
Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)
Request = TypeVar("Request")
Code = grpc.StatusCode


class Call(Protocol[Request_contra, Response_co]):
    """A unary call of a gRPC stub."""

    def __call__(
        self, request: Request_contra, *, timeout: float, metadata: Sequence[tuple[str, str]]
    ) -> Awaitable[Response_co]: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """
    TLS files and token of a client; the files are read again for every connection and call.

    >>> Credentials(ca_file=Path("ca.crt"), token_file=Path("token"))    # doctest: +SKIP
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    # Allow the token to be sent to other machines without TLS.
    insecure: bool = False


def credentials_of_environment(variables: Mapping[str, str]) -> Credentials:
    """Return the credentials that ROTA_TLS_CA and ROTA_TOKEN_FILE name, which the operator sets in pods; none without them."""
    ca_file, token_file = (variables.get(name) for name in (TLS_CA_VARIABLE, TOKEN_FILE_VARIABLE))
    return Credentials(
        ca_file=Path(ca_file) if ca_file else None, token_file=Path(token_file) if token_file else None
    )


class Connection:
    """
    A channel with its stubs; created and used on a running event loop.

    Invariant: after a failed connection calls go over a channel that was opened with the present certificate files.
    """

    def __init__(self, address: str, credentials: Credentials | None = None, client_id: str = "") -> None:
        """`credentials`: None for those of the environment. `client_id` begins the user agent of every call."""
        self.address = address
        self._options = (*OPTIONS, ("grpc.primary_user_agent", quote(client_id))) if client_id else OPTIONS
        self._credentials = credentials_of_environment(os.environ) if credentials is None else credentials
        _refuse_exposed_token(address, self._credentials)
        self._replaced: set[asyncio.Task[None]] = set()
        self._versions = self._certificate_versions()
        self._use(self._open())

    def _use(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self.log: LogAsyncStub = LogStub(channel)
        self.coordinator: CoordinatorAsyncStub = CoordinatorStub(channel)

    def _certificate_versions(self) -> Sequence[Version | None]:
        given = self._credentials
        return [
            None if file is None else _version(file)
            for file in (given.ca_file, given.certificate_file, given.key_file)
        ]

    def _follow_files(self) -> None:
        """Open another channel if a certificate file was replaced: a channel keeps the certificates that it was opened with."""
        versions = self._certificate_versions()
        if versions == self._versions:
            return
        opened = self._open()
        self._versions = versions
        closing = asyncio.ensure_future(self._channel.close(REPLACED_S))
        self._replaced.add(closing)
        closing.add_done_callback(self._replaced.discard)
        self._use(opened)

    def _open(self) -> grpc.aio.Channel:
        target = self.address.removeprefix(SCHEME)
        if self._credentials.ca_file is None:
            return grpc.aio.insecure_channel(target, options=self._options)
        return grpc.aio.secure_channel(
            target,
            grpc.ssl_channel_credentials(
                _file_content(self._credentials.ca_file),
                _file_content(self._credentials.key_file),
                _file_content(self._credentials.certificate_file),
            ),
            options=self._options,
        )

    async def ask(self, call: Call[Request, Result], request: Request, *, within_s: float) -> Result:
        """Call once and return the response; raises one of `rota.errors`."""
        try:
            return await call(request, timeout=max(within_s, 0.001), metadata=self._metadata())
        except grpc.aio.AioRpcError as error:
            if error.code() is Code.UNAVAILABLE:
                # A renewed authority may be the reason: the next attempt trusts it.
                self._follow_files()
            raise _error_of(error, self.address) from error

    def _metadata(self) -> Sequence[tuple[str, str]]:
        token = _file_content(self._credentials.token_file)
        return () if token is None else (("authorization", f"Bearer {token.decode().strip()}"),)

    async def close(self) -> None:
        """Close the channel and cancel its pending calls."""
        await self._channel.close()
        for closing in self._replaced:
            closing.cancel()


def _refuse_exposed_token(address: str, credentials: Credentials) -> None:
    """Raise InvalidArgument if the token would be sent to another machine in plain text."""
    if credentials.token_file is None or credentials.ca_file is not None or credentials.insecure:
        return
    if not is_loopback(address.removeprefix(SCHEME)):
        raise errors.InvalidArgument(
            f"{address} is not on this machine, and the token would be sent unencrypted: "
            f"set ca_file in the credentials (or {TLS_CA_VARIABLE}) for TLS, or insecure=True to allow it"
        )


def _file_content(file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise errors.AuthenticationFailed(
            f"{file}, a file of the credentials, cannot be read ({reason}): check that it exists and is readable"
        ) from error


def _version(file: Path) -> Version | None:
    """Return the version of a file; None while it cannot be read, which `_open` reports."""
    try:
        return version_of(file)
    except OSError:
        return None


def _error_of(error: grpc.aio.AioRpcError, address: str) -> errors.RotaError:
    """Translate transport errors, overload, and refusals of a whole call."""
    said = error.details() or error.code().name
    match error.code():
        case Code.DEADLINE_EXCEEDED:
            return errors.TimedOut(f"{address} did not answer in time: check whether it is overloaded")
        case Code.RESOURCE_EXHAUSTED:
            return errors.ThrottlingQuotaExceeded.with_message(f"{address}: {said}; send more slowly")
        case Code.UNAUTHENTICATED:
            return errors.AuthenticationFailed(
                f"{address} rejected the credentials ({said}): pass valid ones"
            )
        case Code.PERMISSION_DENIED:
            return errors.ClusterAuthorizationFailed.with_message(f"{address} denied the call: {said}")
        case Code.UNIMPLEMENTED:
            return errors.NotSupported(f"{address} does not serve a log: start the coordinator with --log")
        case Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE | Code.FAILED_PRECONDITION:
            return errors.InvalidRequest.with_message(f"{address} rejected the request: {said}")
        case _:
            return errors.Disconnected(f"{address} cannot be reached ({said}): check whether it is running")


async def retry_until(
    ask: Callable[[], Awaitable[Result]],
    *,
    deadline_s: float,
    clock: Callable[[], float],
    first_s: float = BACKOFF_FIRST_S,
) -> Result:
    """Call `ask` until it succeeds; raise its error when it is not retriable, or at the deadline."""
    backoff_s = first_s
    while True:
        try:
            return await ask()
        except errors.RotaError as error:
            if not error.retriable or clock() + backoff_s >= deadline_s:
                raise
        await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))
        backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)


class Background:
    """An event loop in a background thread, for callers that are not asynchronous."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rota", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Run a coroutine on the loop and return its result; TimedOut after `timeout_s`, with the coroutine still running."""
        if threading.current_thread() is self._thread:
            work.close()
            self.check_may_block()
        running: ThreadFuture[Result] = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return running.result(timeout_s)
        except FutureTimeout:
            raise errors.TimedOut(f"not completed after {timeout_s} s: call again to wait longer") from None

    def run_with_early_result(
        self, ask: Callable[[Callable[[Any], None]], Coroutine[Any, Any, Result]]
    ) -> Result:
        """Return the first value that `ask` passes to its argument, else its result; it runs on if the caller is interrupted."""
        self.check_may_block()
        early: ThreadFuture[Result] = ThreadFuture()

        def returned(running: ThreadFuture[Result]) -> None:
            if early.done():
                return
            try:
                early.set_result(running.result())
            except BaseException as error:  # noqa: BLE001  whoever asked is told, also of an end by force
                early.set_exception(error)

        asyncio.run_coroutine_threadsafe(ask(early.set_result), self.loop).add_done_callback(returned)
        return early.result()

    def check_may_block(self) -> None:
        """Raise on the loop's own thread, where waiting for the loop would deadlock."""
        if threading.current_thread() is self._thread:
            raise errors.blocking_call_in_callback()


def background() -> Background:
    """Return the background loop of this process; a forked process gets its own."""
    return _of_process(os.getpid())


@cache
def _of_process(pid: int) -> Background:
    return Background()
