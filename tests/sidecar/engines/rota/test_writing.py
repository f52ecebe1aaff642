"""Dead letters are stored in a real log as they were given, or the write fails with the reason."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota_proto.log.keys import murmur2
from rota_proto.log.v1 import log_pb2 as pb
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter
from rota_sidecar.engines.rota.connection import Credentials
from rota_sidecar.engines.rota.fetched import ReadOptions
from rota_sidecar.engines.rota.reading import RotaRecords
from rota_sidecar.engines.rota.writing import RotaDeadLetterWriter
from tests.log.conversation import Conversation
from tests.sidecar.engines.readers import Reader, Row
from tests.support.coordinator import QUICK, Coordinator, serving

pytestmark = pytest.mark.process

WITHIN_S = 60
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("dead_letters")) as coordinator:
        yield coordinator


@asynccontextmanager
async def dead_letter_writer(*addresses: str) -> AsyncIterator[RotaDeadLetterWriter]:
    dead_letters = RotaDeadLetterWriter(addresses, Credentials())
    try:
        yield dead_letters
    finally:
        await dead_letters.close()


def dead_letter(
    topic: str,
    value: bytes | None,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int = 1_000,
) -> DeadLetter:
    return DeadLetter(topic, key, value, headers, timestamp_ms)


def lying(address: str, topic: str, ends: Sequence[int]) -> Sequence[Sequence[Row]]:
    """All records of each partition, which are known to be so many."""

    async def read() -> Sequence[Sequence[Row]]:
        options = ReadOptions(read_committed=True, with_keys=True)
        reader = Reader(
            lambda on_result, on_outage: RotaRecords([address], Credentials(), on_result, on_outage, options)
        )
        try:
            return [
                (await reader.read_to(Partition(topic, number), end)).rows for number, end in enumerate(ends)
            ]
        finally:
            await reader.records.close()

    return asyncio.run(read())


def test_dead_letters_are_stored_as_they_were_given(coordinator: Coordinator) -> None:
    coordinator.make_topic("dead", 1)
    given = [
        dead_letter("dead", b"v", b"k", [("a", b"1"), ("n", None), ("a", b"2")], 5),
        dead_letter("dead", None, b"tombstone", timestamp_ms=3),
        dead_letter("dead", b"", None),
        dead_letter("dead", None),
    ]

    async def write() -> None:
        async with dead_letter_writer(NOBODY, f"rota://{coordinator.address}") as dead_letters:
            await dead_letters.write(given[:3], WITHIN_S)
            await dead_letters.write(given[3:], WITHIN_S)

    asyncio.run(write())
    (rows,) = lying(coordinator.address, "dead", [4])
    assert [(row.value, row.key, tuple(row.headers), row.timestamp_ms) for row in rows] == [
        (each.value, each.key, tuple(each.headers), each.timestamp_ms) for each in given
    ]


def test_dead_letters_with_a_key_go_to_the_partition_of_kafkas_clients_and_others_are_spread(
    coordinator: Coordinator,
) -> None:
    coordinator.make_topic("spread", 3)
    keys = [b"%d" % number for number in range(30)]
    homes = [murmur2(key) % 3 for key in keys]

    async def write() -> None:
        async with dead_letter_writer(coordinator.address) as dead_letters:
            await dead_letters.write([dead_letter("spread", None, key) for key in keys], WITHIN_S)
            for _ in range(3):
                await dead_letters.write([dead_letter("spread", b"no key")], WITHIN_S)

    asyncio.run(write())
    ends = [homes.count(number) + 1 for number in range(3)]
    for number, rows in enumerate(lying(coordinator.address, "spread", ends)):
        with_keys = [row.key for row in rows if row.key is not None]
        assert with_keys == [key for key, home in zip(keys, homes, strict=True) if home == number]


def test_many_dead_letters_are_written_in_batches_that_the_log_takes(coordinator: Coordinator) -> None:
    coordinator.make_topic("large", 1)
    given = [dead_letter("large", b"%06d" % number * 20_000) for number in range(50)]

    async def write() -> None:
        async with dead_letter_writer(coordinator.address) as dead_letters:
            await dead_letters.write(given, WITHIN_S)

    asyncio.run(write())
    (rows,) = lying(coordinator.address, "large", [50])
    assert [row.value for row in rows] == [each.value for each in given]


def test_a_dead_letter_that_the_log_does_not_take_is_refused(coordinator: Coordinator) -> None:
    coordinator.make_topic("strict", 1)

    async def write() -> None:
        async with dead_letter_writer(coordinator.address) as dead_letters:
            with pytest.raises(Refused, match="the dead-letter topic strict rejects a record of that size"):
                await dead_letters.write([dead_letter("strict", b"x" * (2 << 20))], WITHIN_S)

    asyncio.run(write())


def test_a_topic_that_does_not_exist_is_refused_until_it_is_made(coordinator: Coordinator) -> None:
    async def write() -> None:
        refused = "^the dead-letter topic unmade does not exist; create it, or name another topic in the group's settings$"
        async with (
            dead_letter_writer(coordinator.address) as dead_letters,
            Conversation(coordinator.address) as talk,
        ):
            with pytest.raises(Refused, match=refused):
                await dead_letters.write([dead_letter("unmade", b"v")], WITHIN_S)
            await talk.make("unmade")
            await dead_letters.write([dead_letter("unmade", b"v")], WITHIN_S)
            await talk.log.DeleteTopics(pb.DeleteTopicsRequest(names=["unmade"]))
            with pytest.raises(Refused, match=refused):
                await dead_letters.write([dead_letter("unmade", b"v")], WITHIN_S)
            await talk.make("unmade")
            await dead_letters.write([dead_letter("unmade", b"again")], WITHIN_S)

    asyncio.run(write())
    (rows,) = lying(coordinator.address, "unmade", [1])
    assert [row.value for row in rows] == [b"again"]


def test_a_log_that_is_away_is_said_and_written_to_when_it_is_back(tmp_path: Path) -> None:
    async def write(address: str) -> None:
        async with dead_letter_writer(address) as dead_letters:
            await dead_letters.write([dead_letter("dead", b"v")], WITHIN_S)

    with serving(tmp_path, QUICK) as coordinator:
        coordinator.make_topic("dead", 1)
        asyncio.run(write(coordinator.address))
    with pytest.raises(Unreachable, match="cannot be reached"):
        asyncio.run(write(coordinator.address))
