"""A coordinator that was used for long is soon there again."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.coordinator import large_log
from tests.support.coordinator import Coordinator
from tests.support.processes import processor_s

pytestmark = [pytest.mark.process, pytest.mark.alone]

# Of processor time, its start included. On a machine with nothing else to do it takes half of that, which
# benchmarks/loading.py shows; one that has much to do is slower in this measure, too.
LOADED_S = 10


def test_a_thousand_groups_with_a_million_commits_are_loaded_in_seconds(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    asyncio.run(large_log.write(coordinator.file))
    coordinator.start()
    try:
        assert processor_s(coordinator.pid) < LOADED_S
        asyncio.run(all_is_there(coordinator.address))
    finally:
        coordinator.stop()


async def all_is_there(address: str) -> None:
    """Every group, with its last offsets."""
    async with grpc.aio.insecure_channel(address) as channel:
        listed = await AdminStub(channel).ListGroups(admin.ListGroupsRequest())
        assert {group.group_id for group in listed.groups} == set(large_log.group_ids())
        coordinator = CoordinatorStub(channel)
        for group_id in large_log.group_ids():
            fetched = await coordinator.FetchOffsets(pb.FetchOffsetsRequest(group_id=group_id, all=True))
            (topic,) = fetched.topics
            offsets = {partition.index: partition.offset for partition in topic.partitions}
            assert offsets == dict.fromkeys(range(large_log.PARTITIONS), large_log.LAST_OFFSET)
