"""Compaction of a running server: what readers and a restart find, and what is left when it is killed."""

import asyncio
import random
from pathlib import Path

import pytest

import rota
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.compacting import keyed
from tests.log.conversation import Conversation, write_story
from tests.support.coordinator import QUICK, Coordinator

pytestmark = pytest.mark.process

TOPIC = "state"
FLAGS = (*QUICK, "--log-retention-check-interval-ms=20", "--log-min-compaction-lag-ms=0")
KEYS = 50
BATCHES = 40
KILLS = 5
WITHIN_S = 60


async def make(talk: Conversation) -> None:
    topic = pb.CreateTopicsRequest.Topic(
        name=TOPIC, partitions=1, cleanup_policy=pb.CLEANUP_POLICY_COMPACT, delete_retention_ms=1
    )
    reply = await talk.log.CreateTopics(pb.CreateTopicsRequest(topics=[topic]))
    assert reply.topics[0].error_code == codes.NONE


def read_all(address: str) -> dict[int, tuple[bytes, bytes | None]]:
    """All records by offset, as the SDK reads them."""
    found: dict[int, tuple[bytes, bytes | None]] = {}
    with rota.LogReader(f"rota://{address}") as reader:
        for records in reader.read(TOPIC, 0):
            for record in records:
                assert record.key is not None
                found[record.offset] = (record.key, record.value)
    return found


def test_a_server_that_is_killed_while_it_compacts_has_the_last_record_of_each_key(tmp_path: Path) -> None:
    chance = random.Random(3)
    coordinator = Coordinator(tmp_path, FLAGS)
    coordinator.start()
    appended: dict[int, tuple[bytes, bytes | None]] = {}

    async def write(talk: Conversation) -> None:
        for _ in range(BATCHES):
            records = [
                (b"%d" % chance.randrange(KEYS), None if chance.random() < 0.1 else chance.randbytes(200))
                for _ in range(chance.randrange(1, 30))
            ]
            reply = await talk.send(TOPIC, keyed(records, codec=chance.choice([0, 1, 4])))
            assert reply.error_code == codes.NONE
            appended.update(enumerate(records, reply.base_offset))

    def check() -> dict[int, tuple[bytes, bytes | None]]:
        found = read_all(coordinator.address)
        assert all(appended[offset] == record for offset, record in found.items())
        last = {key: (offset, value) for offset, (key, value) in appended.items()}
        for offset, value in last.values():
            assert value is None or found.get(offset) == appended[offset]
        state = dict(found.values())
        assert {key: value for key, value in state.items() if value is not None} == {
            key: value for key, (_, value) in last.items() if value is not None
        }
        return found

    try:
        write_story(coordinator.address, make)
        for _ in range(KILLS):
            write_story(coordinator.address, write)
            check()
            coordinator.kill()
            coordinator.start()
            check()

        async def until_compacted() -> None:
            async with asyncio.timeout(WITHIN_S):
                # Twice the keys: half of the log may be new. The last batch is never compacted.
                while len(await asyncio.to_thread(check)) > 2 * KEYS + 30:
                    await asyncio.sleep(0.05)

        asyncio.run(until_compacted())
    finally:
        coordinator.stop()


def test_a_consumer_group_reads_what_is_left_and_has_no_lag_at_the_end(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, FLAGS)
    coordinator.start()

    async def write(talk: Conversation) -> None:
        await make(talk)
        for number in range(BATCHES):
            records = [(b"%d" % (key if key % 3 else key + number * KEYS), b"v") for key in range(1, 30)]
            assert (await talk.send(TOPIC, keyed(records))).error_code == codes.NONE
        async with asyncio.timeout(WITHIN_S):
            # Gaps within batches: two keys of three are written again.
            while len(await asyncio.to_thread(read_all, coordinator.address)) > 29 * BATCHES * 2 / 3:
                await asyncio.sleep(0.05)

    try:
        write_story(coordinator.address, write)
        left = read_all(coordinator.address)
        found: dict[int, tuple[bytes, bytes | None]] = {}
        with rota.Consumer(
            TOPIC,
            bootstrap_servers=f"rota://{coordinator.address}",
            group_id="readers",
            auto_offset_reset="earliest",
        ) as consumer:
            while 29 * BATCHES - 1 not in found:
                for records in consumer.poll(timeout_ms=1_000).values():
                    found |= {record.offset: (record.key, record.value) for record in records}
            consumer.commit()
            assert consumer.committed(rota.TopicPartition(TOPIC, 0)) == 29 * BATCHES
        # A pass may have removed more since.
        assert found.items() <= left.items()
        assert read_all(coordinator.address).items() <= found.items()
    finally:
        coordinator.stop()
