"""
One connection to one broker: requests out, answers in, as many at once as one likes.

`coordination.py` and `topics.py` open these. A broker answers a connection's requests one after the other: what waits
long, a join, has a connection of its own.
"""

import asyncio
import itertools
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest

from rota_sidecar.engines.kafka import failures
from rota_sidecar.engines.kafka.failures import Failure
from rota_sidecar.engines.kafka.login import log_in, refuse_unsafe
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings
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

# Of one request or answer. The description of a million partitions has 43 MB.
MESSAGE_BYTES_MAX = 64 * 2**20
# A member asks for a handful; whoever asks for more does not wait for answers.
OPEN_MAX = 1000
LENGTH = struct.Struct(">i")
CORRELATION = struct.Struct(">i")
# Correlation ids are 32 bits, and we may live for long.
CORRELATIONS = 2**31
# Asked after ten seconds of silence, three times; what was sent is to be confirmed as soon.
KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}
# What the generated decoders raise on bytes that are no such message.
UNREADABLE = (ValueError, TypeError, IndexError, KeyError, OverflowError, struct.error)


@dataclass(frozen=True, slots=True)
class _Open:
    """A request without its answer."""

    kind: type[ApiMessage]
    answer: "asyncio.Future[bytes]"


class Connection:
    """`connect` makes it. It ends once; from then on everybody is told why."""

    def __init__(
        self, address: Address, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], client_id: str
    ) -> None:
        self._address = address
        self._reader, self._writer = streams
        self._client_id = client_id
        self._encrypted = self._writer.get_extra_info("ssl_object") is not None
        # Before, its end tells something about our settings; afterwards about the broker.
        self._serves = False
        self._open: dict[int, _Open] = {}
        self._known: Known = {}
        self._correlations = itertools.count()
        self._failure: Failure | None = None
        self.ended: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @property
    def address(self) -> Address:
        """The broker's address."""
        return self._address

    @property
    def failure(self) -> Failure | None:
        """Why it ended; None while it stands."""
        return self._failure

    async def ask(self, message: ApiMessage, within_s: float, client_id: str | None = None) -> ApiMessage:
        """
        The broker's answer. Raises Unreachable or Refused.

        A connection that does not answer in time is given up: answers come in order, so no later one could come.
        """
        if self._failure is not None:
            raise failures.again(self._failure)
        if len(self._open) >= OPEN_MAX:
            raise Unreachable(
                f"{OPEN_MAX} requests to {self.address} wait for answers already; wait for some"
            )
        kind, number = type(message), next(self._correlations) % CORRELATIONS
        message.with_header(number, self._client_id if client_id is None else client_id)
        data = message.encode(version=VERSIONS[kind].version, header=True, framed=True)
        if len(data) > MESSAGE_BYTES_MAX:
            raise Refused(
                f"a request of {len(data)} bytes is too large for Kafka; the group has too much in it"
            )
        waiting = _Open(kind, asyncio.get_running_loop().create_future())
        self._open[number] = waiting
        try:
            async with asyncio.timeout(within_s):
                self._writer.write(data)
                with suppress(OSError):  # the reader says what happened
                    await self._writer.drain()
                answer = self._decode(kind, await waiting.answer)
                self._serves |= kind in MEMBERSHIP
                return answer
        except TimeoutError:
            self.end(failures.silent(self.address, within_s))
            raise failures.silent(self.address, within_s) from None

    async def learn_versions(self, within_s: float) -> None:
        """What the broker knows; raises Refused when that is too little for a member."""
        request = ApiVersionsRequest(client_software_name="rota-sidecar", client_software_version="1")
        self._known = known_by(await self.ask(request, within_s))
        missing = missing_in(self._known)
        if missing:
            raise failures.too_old(self.address, missing, OLDEST_KAFKA)

    def knows(self, kind: type[ApiMessage]) -> bool:
        """Whether the broker can be asked this."""
        return is_known(kind, self._known)

    def end(self, failure: Failure) -> None:
        """End it for this reason, if it has not ended before."""
        if self._failure is not None:
            return
        self._failure = failure
        self.ended.set_result(failure)
        for waiting in self._open.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(failures.again(failure))
                # Who asked may have gone away.
                waiting.answer.exception()
        self._open.clear()
        # Not closed in good order: nothing is lost, and TLS would wait for the other end's farewell.
        self._writer.transport.abort()

    async def close(self) -> None:
        """End it because it is not needed any more."""
        self.end(Unreachable(f"the connection to {self.address} was closed here"))
        await asyncio.wait([self._reading])

    async def _read(self) -> None:
        """Until the connection ends."""
        try:
            while True:
                start = await self._reader.readexactly(LENGTH.size)
                (length,) = LENGTH.unpack(start)
                if not CORRELATION.size <= length <= MESSAGE_BYTES_MAX:
                    self.end(failures.garbled(self.address, start))
                    return
                frame = await self._reader.readexactly(length)
                (number,) = CORRELATION.unpack_from(frame)
                waiting = self._open.pop(number, None)
                if waiting is None:
                    self.end(failures.garbled(self.address, start))
                    return
                if not waiting.answer.done():
                    waiting.answer.set_result(frame)
        except (OSError, EOFError) as error:
            if self._serves:
                self.end(failures.lost(self.address))
            else:
                self.end(failures.connection_failure(error, self.address, encrypted=self._encrypted))

    def _decode(self, kind: type[ApiMessage], frame: bytes) -> ApiMessage:
        message_version = VERSIONS[kind]
        try:
            return message_version.response.decode(frame, version=message_version.version, header=True)
        except UNREADABLE:
            raise self.end_garbled() from None

    def end_garbled(self) -> Failure:
        """End it, because nobody can make sense of an answer; what to raise."""
        failure = failures.garbled(self.address, b"")
        self.end(failure)
        return failures.again(failure)


async def connect(address: Address, settings: KafkaSettings, within_s: float) -> Connection:
    """Connect and log in. Raises Unreachable or Refused."""
    refuse_unsafe(settings, address)
    connection: Connection | None = None
    try:
        async with asyncio.timeout(within_s):
            connection = Connection(address, await _streams(address, settings), settings.client_id)
            await connection.learn_versions(within_s)
            if settings.sasl is not None:
                await log_in(connection, settings.sasl, within_s)
            return connection
    except BaseException as error:
        if connection is not None:
            await connection.close()
        if isinstance(error, TimeoutError):
            raise failures.silent(address, within_s) from None
        raise


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
    """Notice within half a minute that the other machine is gone, also while a join waits for minutes."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        # Not every system has each of them.
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
