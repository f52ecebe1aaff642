"""Watches one group at the coordinator beside us, for as long as there is somebody who looks."""

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio

from rota_operator.overview.description import Description, description_of
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2 import NONE

# It is on this machine, and ends only to be started again.
AGAIN_S = 0.2


async def watch(
    channel: grpc.aio.Channel,
    group_id: str,
    describe: Callable[[Description], None],
    is_away: Callable[[str], None],
) -> None:
    """For ever; whoever has enough cancels it."""
    while True:
        try:
            async for told in AdminStub(channel).WatchGroup(WatchGroupRequest(group_id=group_id)):
                if told.group.error_code == NONE:
                    describe(description_of(told))
        except grpc.aio.AioRpcError:
            # It starts, or is started again; processes tell about that.
            pass
        is_away(group_id)
        await asyncio.sleep(AGAIN_S)
