"""
Process of a consumer's own sidecar: a child process on a private socket.

It exits with this process, even after a kill: its standard input is a pipe from this process, and it stops when that closes.
"""

import asyncio
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from typing_extensions import override

from rota import errors
from rota.addresses import is_rota
from rota.connection import CREDENTIAL_VARIABLES, Credentials, credentials_of_environment
from rota.consumer.sidecar_log import entry_of
from rota.consumer.sidecar_options import FLAGS, PROPERTIES, SidecarOptions
from rota.consumer.sidecars import Sidecar, Subscription
from rota.consumer.token_file import TokenWriter
from rota.consumer.transport import GrpcTransport, Transport
from rota.oauth import token_source
from rota.security import credentials_of, uses_tls

log = logging.getLogger("rota.sidecar")
MODULE = "rota_sidecar"
# Time after the drain for the sidecar to close its connections.
CLOSING_S = 5.0
LINES_MAX = 20
# The sidecar's own first and longest delay before it connects to a broker again, as Kafka's.
RECONNECT_BACKOFF_MS, RECONNECT_BACKOFF_MAX_MS = 50, 1_000
LISTENS = "listening on "


class SidecarProcess(Sidecar):
    """The sidecar process of one consumer; used on one event loop. Invariant: it exits with this process."""

    def __init__(self, options: SidecarOptions, address: str, module: str = MODULE) -> None:
        if importlib.util.find_spec(module) is None:
            raise errors.SidecarFailed(
                "a consumer with bootstrap_servers= starts a sidecar, but rota-sidecar is not installed: install it, or pass "
                "the address of a running sidecar with sidecar="
            )
        self._options = options
        self._address = address
        self._module = module
        self._folder: Path | None = None
        self._transport: Transport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        # Messages of its last log entries.
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._is_subscribed = False

    @override
    async def open(self, subscription: Subscription) -> Transport:
        async with self._starting:
            if self._transport is None:
                self._transport = await self._start(subscription)
        return self._transport

    async def _start(self, subscription: Subscription) -> Transport:
        self._folder = private_folder()
        socket = self._folder / "app.sock"
        self._is_subscribed = bool(subscription)
        token_flags = await self._begin_tokens(self._folder)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            *flags(self._options, self._address, subscription),
            *token_flags,
            f"--listen-socket={socket}",
            "--listen=",
            "--http-listen=",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # A session of its own: Ctrl-C reaches the application only, which stops the sidecar when its own
            # work is done.
            start_new_session=True,
            env=environment(self._options),
        )
        listens = asyncio.Event()
        self._reading = asyncio.create_task(self._read(listens))
        # An attempt before the socket exists would be retried only after the backoff.
        await listens.wait()
        return GrpcTransport(f"unix:{socket}")

    async def _begin_tokens(self, folder: Path) -> Sequence[str]:
        """Write the first token of the application's provider, if there is one; return the flag of its file."""
        if self._options.sasl_oauth_token_provider is None:
            return ()
        file = folder / "token"
        writer = TokenWriter(token_source(self._options), file)
        token = await writer.begin()
        self._following = asyncio.create_task(writer.follow(token))
        return (f"--sasl-oauthbearer-token-endpoint-url=file://{quote(str(file))}",)

    async def _read(self, listens: asyncio.Event) -> None:
        """Log the sidecar's standard error until it exits."""
        assert self._process is not None
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            entry = entry_of(line.decode(errors="replace").rstrip())
            self._lines.append(entry.message)
            log.log(entry.level, "%s", entry.message)
            if LISTENS in entry.message:
                listens.set()
        await self._process.wait()
        listens.set()

    @property
    @override
    def begins_subscribed(self) -> bool:
        return self._is_subscribed

    @property
    @override
    def logs_here(self) -> bool:
        return True

    @override
    def ended(self) -> str:
        if self._process is None or self._process.returncode is None:
            return ""
        said = self._lines[-1] if self._lines else "it logged nothing"
        return f"the consumer's own sidecar exited with code {self._process.returncode}: {said}"

    @override
    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            within_s = self._options.sidecar_drain_timeout_ms / 1000 + CLOSING_S
            try:
                async with asyncio.timeout(within_s):
                    await self._process.wait()
            except TimeoutError:
                log.warning("the consumer's own sidecar did not exit within %s s; killing it", within_s)
                self._process.kill()
                await self._process.wait()
        if self._reading is not None:
            await self._reading
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def private_folder() -> Path:
    """Create a folder that only this user can access, as `mkdtemp` does. Raises SidecarFailed."""
    try:
        return Path(tempfile.mkdtemp(prefix="rota-"))
    except OSError as error:
        where = f": {Path(error.filename).parent}" if error.filename else ""
        raise errors.SidecarFailed(
            f"the consumer's own sidecar cannot be started ({error.strerror}{where}): free some space, or set TMPDIR to "
            "another folder"
        ) from error


def flags(options: SidecarOptions, address: str, subscription: Subscription) -> Iterator[str]:
    """Build the sidecar's flags; none of them is secret, as arguments are public on a machine."""
    yield "--ends-with-stdin"
    yield f"--bootstrap-servers={address}"
    yield f"--group-id={options.group_id}"
    yield f"--client-id={options.client_id}"
    yield f"--drain-timeout-ms={options.sidecar_drain_timeout_ms}"
    if subscription.topics:
        yield f"--topics={','.join(subscription.topics)}"
    if subscription.pattern:
        yield f"--topic-pattern={subscription.pattern}"
    if not options.enable_auto_commit:
        # It may be assigned partitions before the application is attached, and would commit their first positions.
        yield "--commit-mode=external"
    for name, flag in FLAGS.items():
        if (value := getattr(options, name)) is not None:
            yield f"{flag}={value}"
    yield from kafka_flags(options, address)
    strategy = options.partition_assignment_strategy
    if strategy is not None:
        yield f"--assignors={strategy if isinstance(strategy, str) else ','.join(strategy)}"
    yield from security_flags(options, address)
    yield from options.sidecar_flags


def kafka_flags(options: SidecarOptions, address: str) -> Iterator[str]:
    """Build the flags with properties of Kafka's client; none for Rota's log."""
    if is_rota(address):
        return
    given = {name: value for name in PROPERTIES if (value := getattr(options, name)) is not None}
    if "reconnect_backoff_ms" in given or "reconnect_backoff_max_ms" in given:
        # As in Kafka, the longest delay bounds the first one too; librdkafka refuses a first one that is longer.
        longest_ms = given.setdefault("reconnect_backoff_max_ms", RECONNECT_BACKOFF_MAX_MS)
        given["reconnect_backoff_ms"] = min(
            given.get("reconnect_backoff_ms", RECONNECT_BACKOFF_MS), longest_ms
        )
    for name, value in given.items():
        yield f"--config={PROPERTIES[name]}={value}"


def security_flags(options: SidecarOptions, address: str) -> Iterator[str]:
    """Build the flags of TLS and of credential files."""
    credentials = credentials_of(options)
    if uses_tls(options):
        yield "--tls"
    if options.security_protocol == "SASL_PLAINTEXT" and not options.coordinator_address:
        # The application says that the password may be sent in plain text. With a coordinator it would hold for a token too.
        yield "--insecure"
    if credentials is not None:
        yield from credential_flags(credentials)
    elif is_rota(address) or options.coordinator_address:
        yield from environment_flags(credentials_of_environment(os.environ))


def credential_flags(credentials: Credentials) -> Iterator[str]:
    """Build the flags of credential files, and the one that allows a token without TLS; never the token itself."""
    if credentials.insecure:
        yield "--insecure"
    for flag, file in (
        ("--tls-ca", credentials.ca_file),
        ("--tls-cert", credentials.certificate_file),
        ("--tls-key", credentials.key_file),
        ("--token-file", credentials.token_file),
    ):
        if file is not None:
            yield f"{flag}={file}"


def environment_flags(credentials: Credentials) -> Iterator[str]:
    """Build the flags of the environment's credentials, which are for Rota's servers alone, whatever the records are in."""
    if credentials.ca_file is not None:
        yield f"--rota-tls-ca={credentials.ca_file}"
    if credentials.token_file is not None:
        yield f"--token-file={credentials.token_file}"


def environment(options: SidecarOptions) -> Mapping[str, str]:
    """
    Return this process's environment with the Kafka login, which must not be among the arguments, and without the credentials for
    Rota's servers, which would be for Kafka too.
    """
    login = {
        "ROTA_SASL_USERNAME": options.sasl_username,
        "ROTA_SASL_PASSWORD": options.sasl_password,
        "ROTA_SASL_OAUTHBEARER_CLIENT_SECRET": options.sasl_oauthbearer_client_secret,
    }
    own = {name: value for name, value in os.environ.items() if name not in CREDENTIAL_VARIABLES}
    return {**own, **{name: value for name, value in login.items() if value}}
