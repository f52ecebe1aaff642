"""Random commits and transactions, step by step on a Kafka broker and on Rota's core: both read the same offsets."""

import asyncio
import random

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.cases_topics import until_committed
from tests.conformance.core import CoreDriver
from tests.conformance.driver import DEFAULT, PRODUCERS
from tests.conformance.kafka import KafkaDriver
from tests.conformance.members import Member, fetch, new_group
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

STEPS = 250
PARTITIONS = 2
# Transactions overlap often only when plain commits, which outweigh earlier transactional ones, are rare.
WEIGHTS = {"plain": 1, "transactional": 5, "commit": 3, "abort": 1}


async def run(bootstrap: str, seed: int) -> None:
    broker = KafkaDriver(bootstrap, DEFAULT)
    try:
        await compare(CoreDriver(DEFAULT), broker, random.Random(seed))
    finally:
        await broker.close()


async def compare(core: CoreDriver, broker: KafkaDriver, chance: random.Random) -> None:
    """Take random steps on both; after each step, both have the same committed offsets."""
    group = new_group()
    open_transactions: set[str] = set()
    for number, kind in enumerate(chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS)):
        offsets = {chance.randrange(PARTITIONS): 1 + number}
        producer = chance.choice(list(PRODUCERS))
        for driver in (core, broker):
            if kind == "plain":
                assert await Member(driver, group).commit(offsets) == pb.NONE
            elif kind == "transactional":
                assert await Member(driver, group).txn_commit(offsets, producer) == pb.NONE
            elif producer in open_transactions:
                await driver.end_transaction(group, producer, committed=kind == "commit")
        if kind == "transactional":
            open_transactions.add(producer)
        elif kind != "plain":
            open_transactions.discard(producer)
            await core.fail_over(group)
        await until_committed(broker, group, await fetch(core, group, *range(PARTITIONS)))


def test_commits_and_transactions_read_the_same_beside_a_broker(prepared: Kafka, seed: int) -> None:
    asyncio.run(run(prepared.bootstrap, seed))
