"""
Connection to one broker, with up to `IN_FLIGHT_MAX` requests in flight.

Opened by `coordination.py` and `bootstrap.py`. A broker answers the requests of a connection in order; requests that wait
for other members (JoinGroup, SyncGroup) therefore use a connection of their own.
"""

import asyncio
import itertools
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest

from rota_sidecar.engines.kafka import failures
from rota_sidecar.engines.kafka.failures import Failure
from rota_sidecar.engines.kafka.login import Channel, PreparedLogin, log_in, prepare, refuse_unsafe
from rota_sidecar.engines.kafka.reauthentication import keep_authenticated
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings, Sasl
from rota_sidecar.engines.kafka.tls import context_of
from rota_sidecar.engines.kafka.versions import (
    MEMBERSHIP,
    OLDEST_KAFKA,
    VERSIONS,
    Known,
    is_known,
    known_by,
    missing_in,
)
from rota_sidecar.engines.port import Refused, Unreachable

# Limit of one request or response. The metadata of a million partitions have 43 MB.
MESSAGE_BYTES_MAX = 64 * 2**20
# Limit of requests in flight. A member has a handful.
IN_FLIGHT_MAX = 1000
LENGTH = struct.Struct(">i")
CORRELATION = struct.Struct(">i")
# Correlation ids are signed 32-bit numbers and wrap around.
CORRELATIONS = 2**31
# Keepalive probes after 10 s of silence, three of them; unacknowledged data end the connection after 25 s.
KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
# Exceptions of the generated decoders for malformed bytes.
UNREADABLE = (ValueError, TypeError, IndexError, KeyError, OverflowError, struct.error)


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A request in flight."""

    kind: type[ApiMessage]
    answer: "asyncio.Future[bytes]"


class Connection:
    """
    Created by `connect`.

    Invariant: a connection ends once; all requests in flight and all later ones fail with the reason of that end.
    """

    def __init__(
        self, address: Address, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], client_id: str
    ) -> None:
        self._address = address
        self._reader, self._writer = streams
        self._client_id = client_id
        self._encrypted = self._writer.get_extra_info("ssl_object") is not None
        # True after the first response to a member. Before it, the end of a connection points at the settings.
        self._serves = False
        self._in_flight: dict[int, _InFlight] = {}
        self._known: Known = {}
        self._correlations = itertools.count()
        self._failure: Failure | None = None
        self.ended: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        # Set unless a re-authentication holds back the requests.
        self._open = asyncio.Event()
        self._open.set()
        # Set while no request is in flight.
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._reauthenticating: asyncio.Task[None] | None = None

    @property
    def address(self) -> Address:
        """The broker's address."""
        return self._address

    @property
    def failure(self) -> Failure | None:
        """The reason for its end; None while it is open."""
        return self._failure

    async def ask(self, message: ApiMessage, within_s: float, client_id: str | None = None) -> ApiMessage:
        """
        Send a request and return the broker's response. Raises Unreachable or Refused.

        A timeout ends the connection: responses come in order, so none of a later request could come before this one.
        """
        if not self._open.is_set():
            within_s = await self._wait_until_open(within_s)
        return await self._send(message, within_s, client_id)

    async def _wait_until_open(self, within_s: float) -> float:
        """Wait for the end of a re-authentication; return the rest of the time. Raises Unreachable."""
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + within_s
        try:
            async with asyncio.timeout_at(deadline_s):
                while not self._open.is_set():
                    await self._open.wait()
        except TimeoutError:
            raise failures.silent(self.address, within_s) from None
        return deadline_s - clock()

    async def _send(self, message: ApiMessage, within_s: float, client_id: str | None = None) -> ApiMessage:
        if self._failure is not None:
            raise failures.again(self._failure)
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            raise Unreachable(
                f"{IN_FLIGHT_MAX} requests to {self.address} are in flight already; retry when some have their responses"
            )
        kind, number = type(message), next(self._correlations) % CORRELATIONS
        message.with_header(number, self._client_id if client_id is None else client_id)
        data = message.encode(version=VERSIONS[kind].version, header=True, framed=True)
        if len(data) > MESSAGE_BYTES_MAX:
            raise Refused(
                f"a request of {len(data)} bytes exceeds Kafka's limit; reduce the group's members or topics"
            )
        waiting = _InFlight(kind, asyncio.get_running_loop().create_future())
        self._in_flight[number] = waiting
        self._quiet.clear()
        try:
            async with asyncio.timeout(within_s):
                self._writer.write(data)
                with suppress(OSError):  # the reader reports the reason
                    await self._writer.drain()
                answer = self._decode(kind, await waiting.answer)
                self._serves |= kind in MEMBERSHIP
                return answer
        except TimeoutError:
            self.end(failures.silent(self.address, within_s))
            raise failures.silent(self.address, within_s) from None

    async def learn_versions(self, within_s: float) -> None:
        """Ask for the API versions of the broker. Raises Refused if a member needs one that it lacks, and Unreachable."""
        request = ApiVersionsRequest(client_software_name="rota-sidecar", client_software_version="1")
        self._known = known_by(await self.ask(request, within_s))
        missing = missing_in(self._known)
        if missing:
            raise failures.too_old(self.address, missing, OLDEST_KAFKA)

    async def log_in(self, sasl: Sasl, login: PreparedLogin, within_s: float) -> None:
        """Log in, and again before each session expires. Raises Refused, Unreachable."""
        lifetime_s = await log_in(self, login, within_s)
        if lifetime_s > 0:
            self._reauthenticating = asyncio.create_task(keep_authenticated(self, sasl, lifetime_s))

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Channel]:
        """
        Wait for the requests in flight, and hold back others; yields the channel for a login.

        A JoinGroup in flight is waited for too: brokers read no request behind it, and accept the login that follows also
        after the session has expired.
        """
        self._open.clear()
        try:
            await self._quiet.wait()
            yield _Unheld(self)
        finally:
            self._open.set()

    def knows(self, kind: type[ApiMessage]) -> bool:
        """Return true if the broker supports this request in the version used here."""
        return is_known(kind, self._known)

    def end(self, failure: Failure) -> None:
        """End the connection for this reason; no effect if it has ended before."""
        if self._failure is not None:
            return
        self._failure = failure
        self.ended.set_result(failure)
        for waiting in self._in_flight.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(failures.again(failure))
                # The caller may have been cancelled; this marks the exception as retrieved.
                waiting.answer.exception()
        self._in_flight.clear()
        # Held-back requests fail with the reason.
        self._open.set()
        self._quiet.set()
        if self._reauthenticating is not None and self._reauthenticating is not asyncio.current_task():
            self._reauthenticating.cancel()
        # Aborted, not closed: no data is lost, and TLS would wait for the peer's close_notify.
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close the connection because it is not needed any more."""
        self.end(Unreachable(f"the connection to {self.address} was closed by this client"))
        await asyncio.wait([self._reading, *filter(None, [self._reauthenticating])])

    async def _read(self) -> None:
        """Match responses with requests until the connection ends."""
        try:
            while True:
                start = await self._reader.readexactly(LENGTH.size)
                (length,) = LENGTH.unpack(start)
                if not CORRELATION.size <= length <= MESSAGE_BYTES_MAX:
                    self.end(failures.garbled(self.address, start))
                    return
                frame = await self._reader.readexactly(length)
                (number,) = CORRELATION.unpack_from(frame)
                waiting = self._in_flight.pop(number, None)
                if waiting is None:
                    self.end(failures.garbled(self.address, start))
                    return
                if not waiting.answer.done():
                    waiting.answer.set_result(frame)
                if not self._in_flight:
                    self._quiet.set()
        except (OSError, EOFError) as error:
            self.end(self._loss_for(error))

    def _loss_for(self, error: OSError | EOFError) -> Failure:
        """Return the failure for the end of the connection by the broker or the network."""
        if not self._open.is_set():
            return failures.lost_with_session(self.address)
        if self._serves:
            return failures.lost(self.address)
        return failures.connection_failure(error, self.address, encrypted=self._encrypted)

    def _decode(self, kind: type[ApiMessage], frame: bytes) -> ApiMessage:
        message_version = VERSIONS[kind]
        try:
            return message_version.response.decode(frame, version=message_version.version, header=True)
        except UNREADABLE:
            raise self.end_garbled() from None

    def end_garbled(self) -> Failure:
        """End the connection because a response cannot be decoded; return the exception to raise."""
        failure = failures.garbled(self.address, b"")
        self.end(failure)
        return failures.again(failure)


class _Unheld:
    """A connection for the requests of a re-authentication, which holds back all others."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def address(self) -> Address:
        return self._connection.address

    async def ask(self, message: ApiMessage, within_s: float) -> ApiMessage:
        return await self._connection._send(message, within_s)


async def connect(address: Address, settings: KafkaSettings, within_s: float) -> Connection:
    """Connect and log in. Raises Unreachable or Refused."""
    refuse_unsafe(settings, address)
    sasl = settings.sasl
    connection: Connection | None = None
    login: PreparedLogin | None = None
    try:
        async with asyncio.timeout(within_s):
            # First: a broker does not wait for long, and a token endpoint or a KDC may take a while.
            if sasl is not None:
                login = await prepare(sasl, address)
            connection = Connection(address, await _streams(address, settings), settings.client_id)
            await connection.learn_versions(within_s)
            if sasl is not None and login is not None:
                await connection.log_in(sasl, login, within_s)
            return connection
    except BaseException as error:
        if connection is not None:
            await connection.close()
        if isinstance(error, TimeoutError):
            if sasl is not None and login is None:
                raise failures.not_prepared(sasl, address, within_s) from None
            raise failures.silent(address, within_s) from None
        raise
    finally:
        if login is not None:
            login.close()


async def _streams(
    address: Address, settings: KafkaSettings
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls: ssl.SSLContext | None = None if settings.tls is None else context_of(settings.tls)
    name = None if tls is None else address.host
    try:
        streams = await asyncio.open_connection(address.host, address.port, ssl=tls, server_hostname=name)
        _keep_alive(streams[1].get_extra_info("socket"))
        return streams
    except OSError as error:
        raise failures.connection_failure(error, address, encrypted=tls is not None) from None


def _keep_alive(connected: socket.socket) -> None:
    """Detect a dead peer within 30 s, also while a JoinGroup waits for minutes."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        # Not every operating system has each option.
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
