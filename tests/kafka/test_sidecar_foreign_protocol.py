"""A consumer of Kafka's newer protocol (KIP-848) in a group of ours: what our member sees, and that it keeps working."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.engines.kafka.settings import KafkaSettings
from tests.conformance.members import assignment
from tests.kafka.sidecar_group import POLL_S, HandMember, member, run
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

PARTITIONS = 4
WITHIN_S = 30


class Foreigner:
    """A consumer that polls in a thread of its own."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        self.assigned, self.refused = threading.Event(), threading.Event()
        self.error: KafkaError | None = None
        self._closing = threading.Event()
        self._consumer = Consumer(
            {**kafka.client_config(), "group.id": group, "group.protocol": "consumer", "log_level": 0}
        )
        self._consumer.subscribe([group], on_assign=self._on_assign)
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def leave(self) -> None:
        """End its membership."""
        self._closing.set()
        self._thread.join()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.assigned.set()

    def _poll(self) -> None:
        while not self._closing.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                self.error = error
                self.refused.set()
        self._consumer.close()


@contextmanager
def foreigner(kafka: Kafka, group: str) -> Iterator[Foreigner]:
    one = Foreigner(kafka, group)
    try:
        yield one
    finally:
        one.leave()


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


def test_a_group_that_a_foreign_consumer_converts_is_known_by_its_missing_leader(
    kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)

    async def share() -> None:
        async with member(KafkaSettings((kafka.bootstrap,)), unique_name, unique_name) as one:
            assert await is_unknown(one)
            await lead(one)
            before = one.generation
            with foreigner(kafka, unique_name) as other:
                await until_it_rebalances(one)
                joined = await one.join()
                assert (joined.error_code, joined.leader, list(joined.members)) == (pb.NONE, "", [])
                assert await one.coordination.protocol_of_group(WITHIN_S) == "consumer"
                # The broker assigns: half is ours.
                synced = await one.sync()
                assert synced.error_code == pb.NONE
                assert len(synced.assignment) == len(assignment(0, 1, topic=unique_name))
                assert await one.commit(1, one.generation, 0, 1) == pb.NONE
                # Commits of what was given away are refused.
                assert await one.commit(9, before, 2, 3) == pb.ILLEGAL_GENERATION
                assert await asyncio.to_thread(other.assigned.wait, WITHIN_S)
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
            with foreigner(kafka, unique_name) as other:
                assert await asyncio.to_thread(other.refused.wait, WITHIN_S)
                assert other.error is not None
                assert "The group id does not exist" in other.error.str()
            assert await one.heartbeat() == pb.NONE
            assert await one.coordination.protocol_of_group(WITHIN_S) == "classic"

    run(keep())
