"""Serve a gRPC service of a benchmark until the process is killed. Called by `echo` and `fleet`."""

import sys
from collections.abc import Callable

import grpc.aio


async def serve(add_service: Callable[[grpc.aio.Server], None]) -> None:
    """Serve at a free port, and log its address as the coordinator does."""
    server = grpc.aio.server()
    add_service(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    await server.wait_for_termination()
