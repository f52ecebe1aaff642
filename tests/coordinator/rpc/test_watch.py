"""Watches of groups, on slots in virtual time: a watch sees that its slot begins and ends to be served."""

import asyncio
from functools import partial

from rota_coordinator.core.group.hashing import slot_of
from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.rpc.watch import Watchers
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2 import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from tests.coordinator.virtual import Virtual, play

GROUP, OTHER = "shop.orders", "shop.payments"


async def describe(virtual: Virtual, group_id: str) -> DescribedGroup:
    reply = await virtual.send(DescribeGroupsRequest(group_ids=[group_id])).answer(1)
    assert isinstance(reply, DescribeGroupsResponse)
    return reply.groups[0]


def test_a_watch_of_a_group_that_does_not_exist_sees_its_slot_stop_and_start() -> None:
    async def body() -> None:
        watchers = Watchers()
        virtual = await Virtual(slot_changed=watchers.slot_changed).start()
        slot = virtual.service.slots[slot_of(GROUP, SLOTS)]
        watch = watchers.watch(GROUP, partial(describe, virtual))
        other = watchers.watch(OTHER, partial(describe, virtual))
        assert (await anext(watch)).error_code == pb.NONE
        assert (await anext(other)).error_code == pb.NONE
        seen = asyncio.ensure_future(anext(watch))
        unseen = asyncio.ensure_future(anext(other))
        await asyncio.sleep(1)
        assert not seen.done()
        slot.stop(pb.NOT_COORDINATOR)
        assert (await seen).error_code == pb.NOT_COORDINATOR
        seen = asyncio.ensure_future(anext(watch))
        await slot.start()
        assert (await seen).error_code == pb.NONE
        assert not unseen.done()
        unseen.cancel()
        await asyncio.gather(unseen, return_exceptions=True)

    play(body)
