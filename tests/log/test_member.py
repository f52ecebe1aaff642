"""The member that is driven by hand does what a consumer would."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.v1 import log_pb2 as log
from rota_proto.log.v1.log_pb2_grpc import LogStub
from tests.support.coordinator import serving
from tests.support.member import in_turn, member, packed, unpacked

pytestmark = pytest.mark.process

PARTITIONS = [("orders", 0), ("orders", 1), ("returns", 0)]


def test_an_assignment_is_read_as_it_was_written() -> None:
    for partitions in ([], PARTITIONS[:1], PARTITIONS):
        assert unpacked(packed(2**40, partitions)) == (2**40, tuple(partitions))
    assert unpacked(b"") == (-1, ())


def test_members_share_partitions_and_know_their_generation(tmp_path: Path) -> None:
    async def body(address: str) -> None:
        async with (
            member(address, "g", in_turn(PARTITIONS)) as first,
            member(address, "g", in_turn(PARTITIONS), instance_id="static") as second,
        ):
            assert set(await first.join()) == set(PARTITIONS)
            joining = asyncio.create_task(second.join())
            await asyncio.wait_for(first.rebalancing.wait(), 20)
            shared = [*await first.join(), *await joining]
            assert sorted(shared) == PARTITIONS
            assert first.metadata.incarnation == second.metadata.incarnation >= 1
            assert first.metadata.generation_id == second.metadata.generation_id == 2
            assert second.metadata.group_instance_id == "static"
            await second.leave()
            await asyncio.wait_for(first.rebalancing.wait(), 20)
            assert set(await first.join()) == set(PARTITIONS)

    with serving(tmp_path) as coordinator:
        asyncio.run(body(coordinator.address))


def test_offsets_of_a_transaction_are_waited_for(tmp_path: Path) -> None:
    async def body(address: str) -> None:
        async with (
            grpc.aio.insecure_channel(address) as channel,
            member(address, "g", in_turn(PARTITIONS[:1])) as only,
        ):
            stub = LogStub(channel)
            topic = log.CreateTopicsRequest.Topic(name="orders", partitions=1)
            await stub.CreateTopics(log.CreateTopicsRequest(topics=[topic]))
            await only.join()
            assert await only.commit({PARTITIONS[0]: 3}) == {pb.NONE}
            made = await stub.InitProducer(
                log.InitProducerRequest(transactional_id="t", transaction_timeout_ms=60_000)
            )
            await stub.AddOffsetsToTransaction(
                log.AddOffsetsToTransactionRequest(
                    transactional_id="t",
                    producer_id=made.producer_id,
                    producer_epoch=made.producer_epoch,
                    group_id="g",
                    generation_id=only.metadata.generation_id,
                    member_id=only.metadata.member_id,
                )
            )
            errors = await only.txn_commit({PARTITIONS[0]: 9}, "t", made.producer_id, made.producer_epoch)
            assert errors == {pb.NONE}
            assert await only.fetch(PARTITIONS[:1], require_stable=False) == {PARTITIONS[0]: 3}
            waiting = asyncio.create_task(only.fetch(PARTITIONS[:1]))
            ended = await stub.EndTransaction(
                log.EndTransactionRequest(
                    transactional_id="t",
                    producer_id=made.producer_id,
                    producer_epoch=made.producer_epoch,
                    commit=True,
                )
            )
            assert ended.error_code == pb.NONE
            assert await waiting == {PARTITIONS[0]: 9}
            await only.leave()

    with serving(tmp_path) as coordinator:
        asyncio.run(body(coordinator.address))
