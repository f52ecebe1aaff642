"""

A server that only answers each frame of a Session stream: the cost of gRPC and Python without a coordinator.
Run as `python -m benchmarks.peers.echo`; logs its address as the coordinator does.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from benchmarks.peers.serving import serve
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

SERVICE = "rota.coordinator.v1.Coordinator"
Context = grpc.aio.ServicerContext[Any, Any]


async def session(
    frames: AsyncIterator[pb.SessionRequest], context: Context
) -> AsyncIterator[pb.SessionResponse]:
    """Answer every heartbeat with NONE."""
    async for frame in frames:
        yield pb.SessionResponse(request_id=frame.request_id, heartbeat=pb.HeartbeatResponse())


def add_service(server: grpc.aio.Server) -> None:
    """Add the service."""
    handler = grpc.stream_stream_rpc_method_handler(
        session,
        request_deserializer=pb.SessionRequest.FromString,
        response_serializer=pb.SessionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Session": handler})])


if __name__ == "__main__":
    asyncio.run(serve(add_service))
