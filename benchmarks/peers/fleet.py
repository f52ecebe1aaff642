"""
A Fleet server that only reads reports: the cost of gRPC and Python without an operator.

Run as `python -m benchmarks.peers.fleet`; logs its address as the coordinator does.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from typing_extensions import override

from benchmarks.peers.serving import serve
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


if __name__ == "__main__":
    asyncio.run(serve(lambda server: add_FleetServicer_to_server(Sink(), server)))
