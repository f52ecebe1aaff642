"""An application's side of Deliver in frames, with the methods that a call of gRPC has."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import Message

from rota_proto.sidecar.frames import END, HEADER, MESSAGE, Frame
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

CODES = {code.value[0]: code for code in grpc.StatusCode}


class FramedCall:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def write(self, message: object) -> None:
        content = message.SerializeToString() if isinstance(message, Message) else message
        assert isinstance(content, bytes)
        await self.send(Frame(MESSAGE, content).encode())

    async def send(self, data: bytes) -> None:
        """Send any bytes."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            # The other side has ended it meanwhile; reading says how.
            pass

    async def done_writing(self) -> None:
        await self.send(Frame(END, b"").encode())

    async def read(self) -> object:
        """Return a response, or EOF. Raises AioRpcError if the stream ended with an error, or was lost."""
        try:
            kind, size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            content = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise failed(grpc.StatusCode.UNAVAILABLE, "the connection was lost") from None
        if kind == MESSAGE:
            return pb.DeliverResponse.FromString(content)
        assert kind == END
        self._writer.close()
        end = pb.DeliverEnd.FromString(content)
        if end.code:
            raise failed(CODES[end.code], end.message)
        return grpc.aio.EOF

    def cancel(self) -> bool:
        if not self._writer.is_closing():
            self._writer.transport.abort()
        return True


async def framed_call(path: Path) -> FramedCall:
    """Open a connection."""
    return FramedCall(*await asyncio.open_unix_connection(path))


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
