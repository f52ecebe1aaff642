"""
The Admin service: describes, watches and changes groups for administrators. It splits requests about several groups
into one per group, and merges the responses in the order of the request.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group import admin
from rota_coordinator.core.group.answers import AdminRequest
from rota_coordinator.rpc.watch import Watchers
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.security.access_control import AccessControl, AuthorizedCaller
from rota_proto.coordinator.v1 import admin_pb2 as pb
from rota_proto.coordinator.v1 import admin_pb2_grpc as pb_grpc
from rota_proto.coordinator.v1.coordinator_pb2 import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    NOT_COORDINATOR,
)

Context = grpc.aio.ServicerContext[Any, Any]
Reply = TypeVar("Reply", bound=Message)
SLOT_STATES = {
    SlotState.DOWN: pb.SLOT_STATE_DOWN,
    SlotState.CATCH_UP: pb.SLOT_STATE_CATCH_UP,
    SlotState.READY: pb.SLOT_STATE_READY,
}
# Errors that no later change of the group takes back at this process.
ENDS_WATCH = frozenset({GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR})


class AdminService(pb_grpc.AdminServicer):
    """Handles the calls of the Admin service."""

    def __init__(self, access_control: AccessControl, watchers: Watchers) -> None:
        self._access_control = access_control
        self._watchers = watchers

    @override
    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        caller = self._access_control.caller()
        if any(slot.state is SlotState.CATCH_UP for slot, _ in caller.slots()):
            return pb.ListGroupsResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)
        listed = map(admin.listed, caller.groups())
        wanted = set(request.states)
        return pb.ListGroupsResponse(groups=[each for each in listed if not wanted or each.state in wanted])

    @override
    async def DescribeGroups(
        self, request: pb.DescribeGroupsRequest, context: Context
    ) -> pb.DescribeGroupsResponse:
        caller = self._access_control.caller()
        groups = await asyncio.gather(*(describe(caller, group_id) for group_id in request.group_ids))
        return pb.DescribeGroupsResponse(groups=groups)

    @override
    async def WatchGroup(
        self, request: pb.WatchGroupRequest, context: Context
    ) -> AsyncIterator[pb.WatchGroupResponse]:
        caller = self._access_control.caller()
        async for group in self._watchers.watch(request.group_id, partial(describe, caller, asked=request)):
            now_ms = int(time.time() * 1000)  # noqa: TID251  shown to users only
            reason = caller.opened_by(request.group_id)
            yield pb.WatchGroupResponse(group=group, reason=reason, timestamp_ms=now_ms)
            if group.error_code in ENDS_WATCH:
                return

    @override
    async def DeleteGroups(
        self, request: pb.DeleteGroupsRequest, context: Context
    ) -> pb.DeleteGroupsResponse:
        caller = self._access_control.caller()
        once = dict.fromkeys(request.group_ids)
        requests = [pb.DeleteGroupsRequest(group_ids=[group_id]) for group_id in once]
        replies = await asyncio.gather(*(ask(caller, each, pb.DeleteGroupsResponse) for each in requests))
        return pb.DeleteGroupsResponse(groups=[group for reply in replies for group in reply.groups])

    @override
    async def DeleteOffsets(
        self, request: pb.DeleteOffsetsRequest, context: Context
    ) -> pb.DeleteOffsetsResponse:
        return await ask(self._access_control.caller(), request, pb.DeleteOffsetsResponse)

    @override
    async def AlterOffsets(
        self, request: pb.AlterOffsetsRequest, context: Context
    ) -> pb.AlterOffsetsResponse:
        return await ask(self._access_control.caller(), request, pb.AlterOffsetsResponse)

    @override
    async def DescribeSlots(
        self, request: pb.DescribeSlotsRequest, context: Context
    ) -> pb.DescribeSlotsResponse:
        caller = self._access_control.caller()
        described = [
            pb.DescribedSlot(
                slot=slot.number,
                state=SLOT_STATES[slot.state],
                owner_address=owner.address,
                epoch=owner.epoch,
            )
            for slot, owner in caller.slots()
        ]
        return pb.DescribeSlotsResponse(slots=described)


async def describe(
    caller: AuthorizedCaller, group_id: str, asked: Message | None = None
) -> pb.DescribedGroup:
    """Return the description of one group, within the caller's rights. `asked`: the client's request, if it was another one."""
    request = pb.DescribeGroupsRequest(group_ids=[group_id])
    reply = cast("pb.DescribeGroupsResponse", await caller.submit(request, client_host="", asked=asked))
    return reply.groups[0]


async def ask(caller: AuthorizedCaller, request: AdminRequest, kind: type[Reply]) -> Reply:
    """Submit a request about one group, and return its response."""
    return cast("Reply", await caller.submit(request, client_host=""))
