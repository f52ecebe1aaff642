"""The gRPC server and the Coordinator service. Calls arrive admitted by `security.access_control` and validated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group.answers import ProtocolRequest
from rota_coordinator.rpc.admin_service import AdminService
from rota_coordinator.rpc.log_service import LogService
from rota_coordinator.rpc.sessions import Session, Sessions
from rota_coordinator.rpc.validation_interceptor import AdmissionInterceptor, refuse
from rota_coordinator.rpc.watch import Watchers
from rota_coordinator.runtime.overload import MESSAGE_BYTES_MAX, Refusal
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.security.access_control import AccessControl
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from rota_proto.coordinator.v1.admin_pb2_grpc import add_AdminServicer_to_server
from rota_proto.log.v1.log_pb2_grpc import add_LogServicer_to_server

# Seconds that sending a refusal may take when the client does not read.
REFUSAL_S = 5
KEEPALIVE_MS = 10_000
PENDING_CALLS_MAX = 20_000
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    # Without keepalive_timeout_ms, a dead peer is detected after a minute, whatever keepalive_time_ms is.
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    # Two coordinators on one port would each receive part of a group's requests.
    ("grpc.so_reuseport", 0),
    # Calls waiting to be handled. Beyond this number gRPC cancels calls of any connection, so the guard must close a
    # flooding connection earlier.
    ("grpc.server.max_pending_requests", PENDING_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS_MAX),
)
Reply = TypeVar("Reply", bound=Message)
Context = grpc.aio.ServicerContext[Any, Any]


class GroupService(pb_grpc.CoordinatorServicer):
    """Handles the calls of the Coordinator service; each is one request to a group, or a stream of requests."""

    def __init__(self, access_control: AccessControl, sessions: Sessions) -> None:
        self._access_control = access_control
        self._sessions = sessions

    @override
    async def FindCoordinator(
        self, request: pb.FindCoordinatorRequest, context: Context
    ) -> pb.FindCoordinatorResponse:
        caller = self._access_control.caller()
        return caller.find(request)

    @override
    async def JoinGroup(self, request: pb.JoinGroupRequest, context: Context) -> pb.JoinGroupResponse:
        return await self._answer(request, context, pb.JoinGroupResponse)

    @override
    async def SyncGroup(self, request: pb.SyncGroupRequest, context: Context) -> pb.SyncGroupResponse:
        return await self._answer(request, context, pb.SyncGroupResponse)

    @override
    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        return await self._answer(request, context, pb.HeartbeatResponse)

    @override
    async def LeaveGroup(self, request: pb.LeaveGroupRequest, context: Context) -> pb.LeaveGroupResponse:
        return await self._answer(request, context, pb.LeaveGroupResponse)

    @override
    async def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: Context
    ) -> pb.CommitOffsetsResponse:
        return await self._answer(request, context, pb.CommitOffsetsResponse)

    @override
    async def TxnCommitOffsets(
        self, request: pb.TxnCommitOffsetsRequest, context: Context
    ) -> pb.TxnCommitOffsetsResponse:
        return await self._answer(request, context, pb.TxnCommitOffsetsResponse)

    @override
    async def FetchOffsets(
        self, request: pb.FetchOffsetsRequest, context: Context
    ) -> pb.FetchOffsetsResponse:
        return await self._answer(request, context, pb.FetchOffsetsResponse)

    @override
    async def Session(  # type: ignore[override]  # grpc.aio also accepts a coroutine that writes its messages itself
        self, request_iterator: AsyncIterator[pb.SessionRequest], context: Context
    ) -> None:
        caller = self._access_control.caller()
        # Confirms admission. A client that writes earlier may mistake a refusal for a broken connection.
        await context.send_initial_metadata(())
        session = Session(self._sessions, caller, client_host(context))
        try:
            await session.run(request_iterator, context.write)
        except Refusal as refusal:
            # Blocks, too, while the client does not read: the refusal then stays queued behind the unread frames.
            with suppress(TimeoutError):
                async with asyncio.timeout(REFUSAL_S):
                    await refuse(context, refusal)

    async def _answer(self, request: ProtocolRequest, context: Context, kind: type[Reply]) -> Reply:
        caller = self._access_control.caller()
        # Shielded: cancelling a call does not remove its member.
        reply = await asyncio.shield(caller.submit(request, client_host(context)))
        if reply is None:
            await refuse(context, Refusal("ABORTED", "superseded by a newer request of the same member"))
        return cast("Reply", reply)


def client_host(context: Context) -> str:
    """Return the peer's address in Kafka's format: `/127.0.0.1`."""
    peer = context.peer()
    address = peer.split(":", 1)[1].rsplit(":", 1)[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
    return f"/{address}"


def make_server(
    access_control: AccessControl, sessions: Sessions, watchers: Watchers, log: TopicLog | None = None
) -> grpc.aio.Server:
    """Return a server with all services registered, neither started nor listening."""
    server = grpc.aio.server(
        interceptors=[AdmissionInterceptor(access_control)],
        options=(
            *OPTIONS,
            ("grpc.max_concurrent_streams", access_control.connections.limits.streams_per_connection),
        ),
    )
    pb_grpc.add_CoordinatorServicer_to_server(GroupService(access_control, sessions), server)
    add_AdminServicer_to_server(AdminService(access_control, watchers), server)
    if log is not None:
        add_LogServicer_to_server(LogService(access_control, log), server)
    return server
