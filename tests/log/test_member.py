"""The member that is driven by hand does what a consumer would."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import grpc.aio
import pytest

from rota.stores import SqlStore, StoreFenced
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


def test_a_static_member_that_comes_back_fences_its_former_self_in_the_store(tmp_path: Path) -> None:
    async def body(address: str) -> None:
        file = tmp_path / "application.db"
        assign = in_turn(PARTITIONS)
        async with (
            member(address, "g", assign, instance_id="static") as before,
            member(address, "g", assign, instance_id="static") as after,
        ):
            with closing(sqlite3.connect(file)) as one, closing(sqlite3.connect(file)) as two:
                former, later = SqlStore(one), SqlStore(two)
                former.create_tables()
                partitions = await before.join()
                late = former.assign(before.metadata, partitions)
                assert await after.join() == partitions
                tenure = later.assign(after.metadata, partitions)
                assert late.group.generation_id == tenure.group.generation_id
                assert late.group.member_id != tenure.group.member_id
                with pytest.raises(StoreFenced), former.transaction(late) as tx:
                    tx.save({PARTITIONS[0]: 10})
                with later.transaction(tenure) as tx:
                    tx.save({PARTITIONS[0]: 5})
                assert later.stored_offsets("g") == {PARTITIONS[0]: 5}

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
