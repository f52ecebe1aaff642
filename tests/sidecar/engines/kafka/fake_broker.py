"""Fake brokers in the test's process: other servers, old brokers, and brokers with malformed responses."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.versions import VERSIONS

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answering = Callable[[ApiMessage], ApiMessage | bytes | None]
KINDS = {(kind.API_KEY, message_version.version): kind for kind, message_version in VERSIONS.items()}
HEAD = struct.Struct(">hhi")


@asynccontextmanager
async def listening(behave: Behaviour) -> AsyncIterator[KafkaSettings]:
    """Run a server with this behaviour for each connection; yields the settings to connect to it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behave(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other end has gone
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield KafkaSettings((f"127.0.0.1:{port}",))
    finally:
        server.close()
        await server.wait_closed()


def saying(data: bytes) -> Behaviour:
    """Return the behaviour that waits for a request, writes these bytes and closes the connection."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        await writer.drain()

    return behave


def answering(answer: Answering, knows: Mapping[int, range] | None = None) -> Behaviour:
    """Speaks Kafka: says what it knows (all, unless told), and the rest as `answer` says; None: not at all."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            key, version, number = HEAD.unpack_from(frame)
            kind = KINDS[key, version]
            request = kind.decode(frame, version=version, header=True)
            said = versions(knows) if kind is ApiVersionsRequest else answer(request)
            if said is None:
                continue
            if isinstance(said, ApiMessage):
                said = head(said, version, number) + said.encode(version=version)
            writer.write(struct.pack(">i", len(said)) + said)

    return behave


def head(answer: ApiMessage, version: int, number: int) -> bytes:
    """Return the header of a response; flexible versions have an empty list of tagged fields."""
    tags = answer.flexible_version_q(version) and not isinstance(answer, ApiVersionsResponse)
    return struct.pack(">i", number) + (b"\0" if tags else b"")


def versions(knows: Mapping[int, range] | None = None) -> ApiMessage:
    """The answer to ApiVersions."""
    known = (
        {kind.API_KEY: range(message_version.version + 1) for kind, message_version in VERSIONS.items()}
        if knows is None
        else knows
    )
    return ApiVersionsResponse(
        error_code=0, api_keys=[(key, each[0], each[-1]) for key, each in known.items()]
    )
