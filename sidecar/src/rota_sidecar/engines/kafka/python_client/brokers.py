"""
Connections of the Python client: to each broker as many as are in use at once, and one for descriptions of topics.

Used by `reading.py`, `lookups.py` and `writing.py`. A broker answers the requests of a connection one after the other, so that
a request for other partitions would wait for a Fetch request that waits for records: it has a connection of its own.
"""

import asyncio
from collections.abc import Collection, Sequence

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import MetadataRequest

from rota_sidecar.engines.kafka.bootstrap import Bootstrap
from rota_sidecar.engines.kafka.connection import Connection, connect
from rota_sidecar.engines.kafka.metadata import Metadata
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings


class Brokers:
    """Invariant: each connection is idle, or in use by one caller of `ask`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._bootstrap = Bootstrap(settings)
        self._idle: dict[Address, list[Connection]] = {}
        self._describing: Connection | None = None
        self._closed = False

    async def ask(self, address: Address, message: ApiMessage, within_s: float) -> ApiMessage:
        """Send a request on an idle connection, or else on a new one. Raises Unreachable, Refused."""
        connection = self._take_idle(address)
        try:
            if connection is None:
                connection = await connect(address, self._settings, within_s)
            return await connection.ask(message, within_s)
        except BaseException:
            # Also if the caller is cancelled: the next request would wait for the response to this one.
            if connection is not None:
                await connection.close()
            raise
        finally:
            if connection is not None and connection.failure is None:
                await self._release(connection)

    async def _release(self, connection: Connection) -> None:
        """Keep a connection for the next caller, unless `close` has come in between."""
        if self._closed:
            await connection.close()
        else:
            self._idle.setdefault(connection.address, []).append(connection)

    def _take_idle(self, address: Address) -> Connection | None:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.failure is None:
                return connection
        return None

    async def describe(
        self, topics: Collection[str], within_s: float, beside: Sequence[Address] = ()
    ) -> Metadata:
        """Describe topics, without creating any, by the first bootstrap server that answers, or a broker of `beside`."""
        request = MetadataRequest(topics=[(None, name) for name in topics], allow_auto_topic_creation=False)
        known = self._describing
        if known is not None and known.failure is None:
            answer = await known.ask(request, within_s)
        else:
            answer, connection = await self._bootstrap.ask(request, within_s, beside)
            if self._closed or self._describing is not known:
                # Another call has opened one meanwhile.
                await connection.close()
            else:
                self._describing = connection
        assert isinstance(answer, Metadata)
        return answer

    async def close(self) -> None:
        """Close all connections; one that is in use is closed when its response is there."""
        self._closed = True
        connections = [each for idle in self._idle.values() for each in idle]
        if self._describing is not None:
            connections.append(self._describing)
        self._idle.clear()
        self._describing = None
        await asyncio.gather(*(each.close() for each in connections))
