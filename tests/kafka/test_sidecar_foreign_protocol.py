"""A consumer of Kafka's newer protocol (KIP-848) in a group of ours: what our member sees, and that it keeps working."""

import asyncio

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.engines.kafka.settings import KafkaSettings
from tests.conformance.members import assignment
from tests.kafka.sidecar_group import POLL_S, HandMember, member, run
from tests.support.kafka import Kafka
from tests.support.kafka.consumers import newer

pytestmark = pytest.mark.kafka

PARTITIONS = 4
WITHIN_S = 60


async def lead(one: HandMember, user_data: bytes = b"") -> None:
    """The group is ours alone, and stable."""
    await one.serve()
    joined = await one.join()
    assert (joined.error_code, joined.leader) == (pb.NONE, one.member_id)
    every = assignment(*range(PARTITIONS), topic=one.topic)
    # The length of the user data comes last.
    with_data = every[:-4] + len(user_data).to_bytes(4, "big") + user_data
    assert (await one.sync(**{one.member_id: with_data})).error_code == pb.NONE
    assert await one.coordination.protocol_of_group(WITHIN_S) == "classic"


async def until_it_rebalances(one: HandMember) -> None:
    while (error := await one.heartbeat()) == pb.NONE:
        await asyncio.sleep(POLL_S)
    assert error == pb.REBALANCE_IN_PROGRESS


async def sync_until_given(one: HandMember, share: bytes) -> pb.SyncGroupResponse:
    """Sync until the broker has given a share of this size; it gives nothing of a topic that it has not seen yet."""
    synced = await one.sync()
    while synced.error_code == pb.NONE and len(synced.assignment) < len(share):
        await until_it_rebalances(one)
        joined = await one.join()
        assert joined.error_code == pb.NONE
        synced = await one.sync()
    return synced


def test_a_group_that_a_foreign_consumer_converts_is_known_by_its_missing_leader(
    kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)

    async def share() -> None:
        async with member(KafkaSettings((kafka.bootstrap,)), unique_name, unique_name) as one:
            assert await is_unknown(one)
            await lead(one)
            before = one.generation
            with newer(kafka, unique_name, unique_name) as other:
                await until_it_rebalances(one)
                joined = await one.join()
                assert (joined.error_code, joined.leader, list(joined.members)) == (pb.NONE, "", [])
                assert await one.coordination.protocol_of_group(WITHIN_S) == "consumer"
                # The broker assigns: half is ours.
                half = assignment(0, 1, topic=unique_name)
                synced = await sync_until_given(one, half)
                assert synced.error_code == pb.NONE
                assert len(synced.assignment) == len(half)
                assert await one.commit(1, one.generation, 0, 1) == pb.NONE
                # Commits of what was given away are refused.
                assert await one.commit(9, before, 2, 3) == pb.ILLEGAL_GENERATION
                await asyncio.to_thread(other.wait_until_it_has, PARTITIONS // 2)
                assert await one.heartbeat() == pb.NONE

            # It left: the group is as before, and we lead it again.
            await until_it_rebalances(one)
            joined = await one.join()
            assert (joined.error_code, joined.leader) == (pb.NONE, one.member_id)
            assert await one.coordination.protocol_of_group(WITHIN_S) == "classic"

    async def is_unknown(one: HandMember) -> bool:
        await one.serve()
        return await one.coordination.protocol_of_group(WITHIN_S) == ""

    run(share())


def test_user_data_in_the_assignments_keeps_foreign_consumers_out(kafka: Kafka, unique_name: str) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)

    async def keep() -> None:
        async with member(KafkaSettings((kafka.bootstrap,)), unique_name, unique_name) as one:
            await lead(one, b"ours")
            with newer(kafka, unique_name, unique_name) as other:
                refusal = await asyncio.to_thread(other.wait_until_it_fails)
                assert "The group id does not exist" in refusal
            assert await one.heartbeat() == pb.NONE
            assert await one.coordination.protocol_of_group(WITHIN_S) == "classic"

    run(keep())
