"""The Admin service: groups seen and changed from outside. Splits requests about many groups, and joins the answers."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.group import admin
from rota_coordinator.group.answers import AdminRequest
from rota_coordinator.service import Service
from rota_coordinator.slot import SlotState
from rota_coordinator.watch import Watchers
from rota_proto.coordinator.v1 import admin_pb2 as pb
from rota_proto.coordinator.v1 import admin_pb2_grpc as pb_grpc
from rota_proto.coordinator.v1.coordinator_pb2 import COORDINATOR_LOAD_IN_PROGRESS

Context = grpc.aio.ServicerContext[Any, Any]
Reply = TypeVar("Reply", bound=Message)
SLOT_STATES = {
    SlotState.DOWN: pb.SLOT_STATE_DOWN,
    SlotState.CATCH_UP: pb.SLOT_STATE_CATCH_UP,
    SlotState.READY: pb.SLOT_STATE_READY,
}


class AdminServer(pb_grpc.AdminServicer):
    """The calls of the service."""

    def __init__(self, service: Service, watchers: Watchers) -> None:
        self._service = service
        self._watchers = watchers

    @override
    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        if any(slot.state is SlotState.CATCH_UP for slot in self._service.slots):
            return pb.ListGroupsResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)
        listed = [
            admin.listed(group) for slot in self._service.slots for group in slot.groups.groups.values()
        ]
        wanted = set(request.states)
        return pb.ListGroupsResponse(groups=[each for each in listed if not wanted or each.state in wanted])

    @override
    async def DescribeGroups(
        self, request: pb.DescribeGroupsRequest, context: Context
    ) -> pb.DescribeGroupsResponse:
        groups = await asyncio.gather(*map(self._describe, request.group_ids))
        return pb.DescribeGroupsResponse(groups=groups)

    @override
    async def WatchGroup(
        self, request: pb.WatchGroupRequest, context: Context
    ) -> AsyncIterator[pb.WatchGroupResponse]:
        async for group in self._watchers.watch(request.group_id, self._describe):
            now_ms = int(time.time() * 1000)  # noqa: TID251  for people to read
            yield pb.WatchGroupResponse(group=group, timestamp_ms=now_ms)

    @override
    async def DeleteGroups(
        self, request: pb.DeleteGroupsRequest, context: Context
    ) -> pb.DeleteGroupsResponse:
        once = dict.fromkeys(request.group_ids)
        requests = [pb.DeleteGroupsRequest(group_ids=[group_id]) for group_id in once]
        replies = await asyncio.gather(*(self._ask(each, pb.DeleteGroupsResponse) for each in requests))
        return pb.DeleteGroupsResponse(groups=[group for reply in replies for group in reply.groups])

    @override
    async def DeleteOffsets(
        self, request: pb.DeleteOffsetsRequest, context: Context
    ) -> pb.DeleteOffsetsResponse:
        return await self._ask(request, pb.DeleteOffsetsResponse)

    @override
    async def AlterOffsets(
        self, request: pb.AlterOffsetsRequest, context: Context
    ) -> pb.AlterOffsetsResponse:
        return await self._ask(request, pb.AlterOffsetsResponse)

    @override
    async def DescribeSlots(
        self, request: pb.DescribeSlotsRequest, context: Context
    ) -> pb.DescribeSlotsResponse:
        described = []
        for slot in self._service.slots:
            address, epoch = self._service.ownership.place_of(slot)
            state = SLOT_STATES[slot.state]
            described.append(
                pb.DescribedSlot(slot=slot.number, state=state, owner_address=address, epoch=epoch)
            )
        return pb.DescribeSlotsResponse(slots=described)

    async def _describe(self, group_id: str) -> pb.DescribedGroup:
        reply = await self._ask(pb.DescribeGroupsRequest(group_ids=[group_id]), pb.DescribeGroupsResponse)
        return reply.groups[0]

    async def _ask(self, request: AdminRequest, kind: type[Reply]) -> Reply:
        return cast("Reply", await self._service.submit(request, client_host=""))
