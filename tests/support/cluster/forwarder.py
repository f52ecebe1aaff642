"""
A program: leads connections to a port of this machine into another network namespace.

    python forwarder.py NAMESPACE-FILE HOST PORT LISTEN

It listens on 127.0.0.1:LISTEN (0: any) where it was started, prints that port, enters the namespace and dials
HOST:PORT in there for each connection. Started by `forward`; imports nothing of ours, so it starts in no time.
"""

import asyncio
import ctypes
import os
import socket
import struct
import sys

CHUNK = 65536


def main() -> None:
    namespace, host, port, listen = sys.argv[1:]
    # A socket stays in the namespace in which it was made.
    listening = socket.create_server(("127.0.0.1", int(listen)), backlog=128)
    print(listening.getsockname()[1], flush=True)
    enter(namespace)
    asyncio.run(serve(listening, host, int(port)))


def enter(namespace: str) -> None:
    """os.setns came with Python 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace) as file:  # noqa: PTH123  # pathlib takes a third of this program's start
        if libc.setns(file.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}: {os.strerror(ctypes.get_errno())}")


async def serve(listening: socket.socket, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError as refused:
            print(f"{host}:{port} is not reached: {refused}", file=sys.stderr, flush=True)
            reset(writer)
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        writer.close()
        far_writer.close()

    server = await asyncio.start_server(connected, sock=listening)
    await server.serve_forever()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on until one side ends, and pass the end on, too: the other direction may still have something to say."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        reset(writer)  # a broken connection is broken for both


def reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a failure, not an end: as it would have without this program."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


if __name__ == "__main__":
    main()
