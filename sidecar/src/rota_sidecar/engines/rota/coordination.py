"""
The client of one group's coordinator on Rota: found through any server, then connected by a Session stream.

Created by `wiring.py` for the membership driver. Up to `IN_FLIGHT_MAX` requests are in flight on the one stream, and
responses come in any order. Notices of the coordinator and the loss of the stream are events for the callback.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
from typing_extensions import override

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_sidecar.core.member.messages import Request, Response
from rota_sidecar.engines.port import Coordination, Disconnected, OnCoordinatorEvent, Refused, Unreachable
from rota_sidecar.engines.rota.connection import (
    Credentials,
    Distrusted,
    Failure,
    RpcClient,
    first_of,
    is_lost,
    metadata_of,
    open_channel,
    silent,
    target_of,
)

# Limit of requests in flight. A member has a handful.
IN_FLIGHT_MAX = 1_000
FRAMES: dict[type[Request], str] = {
    pb.JoinGroupRequest: "join_group",
    pb.SyncGroupRequest: "sync_group",
    pb.HeartbeatRequest: "heartbeat",
    pb.LeaveGroupRequest: "leave_group",
    pb.CommitOffsetsRequest: "commit_offsets",
    pb.FetchOffsetsRequest: "fetch_offsets",
}
if TYPE_CHECKING:
    Stream = grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]
else:
    Stream = grpc.aio.StreamStreamCall
CODES = {code.value[0]: code for code in grpc.StatusCode}


class RotaCoordination(Coordination):
    """Must be created and used on a running loop. Invariant: at most one session is open, to the coordinator found last."""

    def __init__(
        self, group_id: str, addresses: Sequence[str], credentials: Credentials, on_event: OnCoordinatorEvent
    ) -> None:
        self._group_id = group_id
        self._addresses = [target_of(address) for address in addresses]
        self._credentials = credentials
        self._on_event = on_event
        self._session: Session | None = None
        # The address in the last GoAway, and that of the last coordinator; they may be missing among the configured ones.
        self._redirected_to = ""
        self._last_found = ""

    @override
    async def find(self, within_s: float) -> pb.ErrorCode.ValueType:
        try:
            return await self._find(within_s)
        except Distrusted as distrusted:
            if not self._last_found:
                raise
            # It was trusted before. When the authority has changed, this member's file follows within a minute.
            raise Unreachable(f"{distrusted}; retrying until the file has its new authority") from None

    async def _find(self, within_s: float) -> pb.ErrorCode.ValueType:
        await self.close()
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + within_s
        known = dict.fromkeys(filter(None, (self._redirected_to, *self._addresses, self._last_found)))
        self._redirected_to = ""
        found = await first_of(list(known), self._locate, within_s, clock)
        if found.error_code != pb.NONE:
            return found.error_code
        session = Session(
            RpcClient(found.address, self._credentials, deadline_s - clock()), self._on_session_event
        )
        self._session = session
        try:
            await session.open()
        except BaseException as failure:
            await self.close()
            if isinstance(failure, Unreachable) and found.address not in self._addresses:
                raise Unreachable(
                    f"{found.address} is the coordinator of group {self._group_id}, but {failure}"
                ) from None
            raise
        self._last_found = found.address
        return pb.NONE

    @override
    async def ask(self, request: Request, within_s: float) -> Response:
        return await self._connected().ask(request, within_s)

    @override
    async def incarnation(self, within_s: float) -> int | None:
        session = self._connected()
        client = replace(session.client, within_s=within_s)
        request = admin.DescribeGroupsRequest(group_ids=[self._group_id])
        described = (await client.call(AdminStub(session.channel).DescribeGroups, request)).groups[0]
        if described.error_code == pb.NONE:
            return described.incarnation
        name = pb.ErrorCode.Name(described.error_code)
        message = f"{client.address} cannot describe group {self._group_id} ({name})"
        if described.error_code == pb.GROUP_AUTHORIZATION_FAILED:
            raise Refused(f"{message}; grant the group to this client")
        raise Unreachable(f"{message}; retrying at the group's coordinator")

    @override
    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _connected(self) -> "Session":
        if self._session is None:
            raise Unreachable(f"not connected to the coordinator of group {self._group_id}; call find first")
        return self._session

    async def _locate(self, address: str, within_s: float) -> pb.FindCoordinatorResponse.Coordinator:
        client = RpcClient(address, self._credentials, within_s)
        request = pb.FindCoordinatorRequest(group_ids=[self._group_id])
        channel = open_channel(address, self._credentials)
        try:
            found = await client.call(CoordinatorStub(channel).FindCoordinator, request)
        except (Unreachable, Refused):
            if address in self._addresses:
                # The next search begins with the other addresses.
                self._addresses.remove(address)
                self._addresses.append(address)
            raise
        finally:
            await channel.close()
        return found.coordinators[0]

    def _on_session_event(self, event: pb.RebalanceNotice | pb.GoAway | Disconnected) -> None:
        """Pass on events of this group; the address of a GoAway is kept for the next search."""
        if isinstance(event, pb.RebalanceNotice | pb.GoAway) and event.group_id != self._group_id:
            return
        if isinstance(event, pb.GoAway):
            self._redirected_to = event.address
        self._on_event(event)


class Session:
    """
    A Session stream.

    Invariant: a session ends once; all requests in flight and all later ones fail with the reason of that end.
    """

    def __init__(self, client: RpcClient, on_event: OnCoordinatorEvent) -> None:
        self.client = client
        self.channel = open_channel(client.address, client.credentials)
        self._on_event = on_event
        # The last one is None.
        self._frames: asyncio.Queue[pb.SessionRequest | None] = asyncio.Queue(IN_FLIGHT_MAX + 1)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._last_id = 0
        self._stream: Stream | None = None
        self._reader: asyncio.Task[None] | None = None
        # The reason for the end of the session; None while it is open.
        self._ended: Failure | None = None

    async def open(self) -> None:
        """Connect; returns when the server has accepted the stream. Raises Unreachable, Refused."""
        metadata = metadata_of(self.client.credentials)
        stream = self._stream = CoordinatorStub(self.channel).Session(self._outgoing(), metadata=metadata)
        try:
            async with asyncio.timeout(self.client.within_s):
                await stream.initial_metadata()
                if stream.done():
                    raise await self._failure(stream)
        except TimeoutError:
            raise silent(self.client.address, self.client.within_s) from None
        except grpc.aio.AioRpcError as error:
            raise self.client.failure(error.code(), error.details() or "") from None
        self._reader = asyncio.create_task(self._read(stream))

    async def ask(self, request: Request, within_s: float) -> Response:
        """Send a request and return its response. Raises Unreachable, Refused."""
        if self._ended is not None:
            raise type(self._ended)(*self._ended.args)
        if len(self._waiting) >= IN_FLIGHT_MAX or self._frames.qsize() >= IN_FLIGHT_MAX:
            raise Unreachable(
                f"{IN_FLIGHT_MAX} requests to {self.client.address} are in flight already; retrying when some have responses"
            )
        self._last_id += 1
        number = self._last_id
        frame = pb.SessionRequest(request_id=number)
        kind = FRAMES[type(request)]
        getattr(frame, kind).CopyFrom(request)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._frames.put_nowait(frame)
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            raise silent(self.client.address, within_s) from None
        finally:
            # A late response is ignored.
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Close the stream and the channel; requests in flight fail, and no event follows."""
        self._end(
            Unreachable(
                f"the connection to {self.client.address} was closed by this client; find the coordinator again"
            )
        )
        if self._stream is not None:
            self._stream.cancel()
        if self._reader is not None:
            await asyncio.wait([self._reader])
        await self.channel.close()

    async def _outgoing(self) -> AsyncIterator[pb.SessionRequest]:
        # gRPC leaves its task waiting for the next frame when the server ends the stream, and never ends it.
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def _read(self, stream: Stream) -> None:
        try:
            async for frame in stream:
                self._receive(frame)
            failure: Failure = Unreachable(f"{self.client.address} ended the connection: it shuts down")
        except grpc.aio.AioRpcError as error:
            failure = self._end_of_stream(error)
        except asyncio.CancelledError:
            # gRPC raises this after `cancel` in `close`, which has ended the session already.
            return
        if self._end(failure):
            self._on_event(Disconnected(str(failure)))

    def _end_of_stream(self, error: grpc.aio.AioRpcError) -> Failure:
        """
        Return the failure for the end of a stream that was open. UNAUTHENTICATED ends one whose token has expired: the token file
        has a new one by then, or the next call is refused.
        """
        code, said = error.code(), error.details() or ""
        if code is grpc.StatusCode.UNAUTHENTICATED or is_lost(code, said):
            return Unreachable(
                f"{self.client.address} ended the connection ({said}); finding the coordinator again"
            )
        return self.client.failure(code, said)

    def _receive(self, frame: pb.SessionResponse) -> None:
        kind = frame.WhichOneof("response")
        if kind in ("rebalance_notice", "go_away"):
            self._on_event(getattr(frame, kind))
            return
        answer = self._waiting.get(frame.request_id)
        if answer is None or answer.done() or kind is None:
            return
        if kind == "failure":
            answer.set_exception(self._refusal(frame.failure))
        else:
            answer.set_result(cast("Response", getattr(frame, kind)))

    def _refusal(self, failure: pb.Failure) -> Failure:
        return self.client.failure(CODES.get(failure.grpc_code, grpc.StatusCode.UNKNOWN), failure.message)

    async def _failure(self, stream: Stream) -> Failure:
        return self.client.failure(await stream.code(), await stream.details() or "")

    def _end(self, failure: Failure) -> bool:
        """End the session and fail the requests in flight; false: it had ended before."""
        if self._ended is not None:
            return False
        self._ended = failure
        self._frames.put_nowait(None)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(type(failure)(*failure.args))
        return True
