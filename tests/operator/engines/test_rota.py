"""Groups of as many partitions as a coordinator keeps are read and reset in several requests, none larger than it allows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import grpc.aio
import pytest

from rota_operator.engines import rota
from rota_operator.engines.admin import alter_offsets
from rota_operator.engines.coordinators import OnlyCoordinator
from rota_operator.engines.rota import RotaGroups, RotaRecords
from rota_operator.overview.assignment import Partition
from rota_proto.coordinator.v1.coordinator_pb2 import FetchOffsetsRequest
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log.compression import GZIP, compress
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
from tests.log.conversation import batch
from tests.support.coordinator import QUICK, serving

pytestmark = pytest.mark.process
GROUP_ID = "shop.orders"
# Of a request: these are large, and a busy machine takes long for one.
PATIENT_S = 120


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the operator's requests more time: what is tested is their size."""
    monkeypatch.setattr(rota, "CALL_S", PATIENT_S)


def play(folder: Path, story: Callable[[grpc.aio.Channel], Awaitable[None]]) -> None:
    async def run(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            await story(channel)

    with serving(folder, (*QUICK, "--quota-partitions=200000")) as coordinator:
        asyncio.run(run(coordinator.address))


async def create_topics(channel: grpc.aio.Channel, partitions: Mapping[str, int]) -> None:
    """Create topics with so many partitions each."""
    topics = [
        log_pb2.CreateTopicsRequest.Topic(name=name, partitions=count) for name, count in partitions.items()
    ]
    for first in range(0, len(topics), 1_000):
        request = log_pb2.CreateTopicsRequest(topics=topics[first : first + 1_000])
        answer = await LogStub(channel).CreateTopics(request)
        assert [each for each in answer.topics if each.error_code] == []


def test_200_000_committed_offsets_are_set_and_read(tmp_path: Path) -> None:
    counts = {f"orders-of-the-region-{number:02d}": 10_000 for number in range(20)}
    offsets = {
        Partition(topic, number): 10**12 + number
        for topic, count in counts.items()
        for number in range(count)
    }

    async def story(channel: grpc.aio.Channel) -> None:
        await create_topics(channel, counts)
        only = OnlyCoordinator(channel)
        groups = RotaGroups(only)
        await alter_offsets(only, GROUP_ID, offsets)
        assert await groups.committed(GROUP_ID, offsets.keys()) == offsets
        # Of one partition too, of which a reset may be: all are too many for one response.
        one = Partition("orders-of-the-region-07", 7)
        assert await groups.committed(GROUP_ID, [one], only_these=True) == {one: offsets[one]}
        with pytest.raises(grpc.aio.AioRpcError, match="request less at a time"):
            await CoordinatorStub(channel).FetchOffsets(
                FetchOffsetsRequest(group_id=GROUP_ID, all=True), timeout=PATIENT_S
            )

    play(tmp_path, story)


def test_ids_of_more_topics_than_one_request_may_name(tmp_path: Path) -> None:
    names = [f"orders-{number:04d}" for number in range(1_500)]

    async def story(channel: grpc.aio.Channel) -> None:
        await create_topics(channel, dict.fromkeys(names, 1))
        records = RotaRecords(channel, read_committed=True)
        ids = await records.topic_ids(names)
        assert set(ids) == set(names)
        assert len(set(ids.values())) == len(names)
        partitions = await records.partitions(names)
        assert set(partitions) == {Partition(name, 0) for name in names}
        assert len(await records.ranges(partitions)) == len(names)

    play(tmp_path, story)


def test_the_timestamp_of_a_record_in_a_compressed_batch_is_its_own(tmp_path: Path) -> None:
    times = list(range(1_000, 1_100))
    sent = batch([b"value"] * len(times), times=times)
    sent.codec, sent.payload = compress(GZIP, sent.payload)
    assert sent.codec == GZIP

    async def story(channel: grpc.aio.Channel) -> None:
        await create_topics(channel, {"orders": 1})
        partition = log_pb2.ProduceRequest.Partition(topic="orders", index=0, batches=[sent])
        await LogStub(channel).Produce(log_pb2.ProduceRequest(partitions=[partition]))
        here = Partition("orders", 0)
        assert await RotaRecords(channel, read_committed=True).timestamps({here: 42}) == {here: 1_042}

    play(tmp_path, story)
