"""
A Fleet server that only reads reports: the cost of gRPC and Python without an operator.

Run as `python -m benchmarks.peers.fleet`; logs its address as the coordinator does.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetServicer, add_FleetServicer_to_server


class Sink(FleetServicer):
    """Reads reports; to the first one of each stream it sends an order, as an operator may."""

    @override
    async def Connect(
        self, request_iterator: AsyncIterator[pb.SidecarReport], context: Any
    ) -> AsyncIterator[pb.SidecarOrder]:
        is_first = True
        async for _ in request_iterator:
            if is_first:
                is_first = False
                yield pb.SidecarOrder(order_id=1, resume=pb.Resume())


async def main() -> None:
    """Serve until killed."""
    server = grpc.aio.server()
    add_FleetServicer_to_server(Sink(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
