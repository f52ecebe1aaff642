"""Dead letters are stored in a real Kafka as they were given, or the sidecar reports the reason."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.cimpl import NewTopic

from rota_proto.log.keys import murmur2
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.python_client.writing import PythonDeadLetterWriter
from rota_sidecar.engines.kafka.read_options import ReadOptions
from rota_sidecar.engines.kafka.reading import KafkaRecords
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.writing import KafkaDeadLetterWriter
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter
from tests.sidecar.engines.readers import Reader, Row
from tests.support.kafka import MORTAL, Kafka, running
from tests.support.processes import wait_for

pytestmark = pytest.mark.kafka

WITHIN_S = 60
Client = Callable[[KafkaSettings], DeadLetterWriter]
CLIENTS: Mapping[str, Client] = {"librdkafka": KafkaDeadLetterWriter, "python": PythonDeadLetterWriter}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client that writes dead letters to Kafka."""
    return CLIENTS[request.param]


@asynccontextmanager
async def dead_letter_writer(kafka: Kafka, client: Client) -> AsyncIterator[DeadLetterWriter]:
    dead_letters = client(KafkaSettings((kafka.bootstrap,)))
    try:
        yield dead_letters
    finally:
        async with asyncio.timeout(WITHIN_S):
            await dead_letters.close()


def dead_letter(
    topic: str,
    value: bytes | None,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int = 1_000,
) -> DeadLetter:
    return DeadLetter(topic, key, value, headers, timestamp_ms)


def lying(kafka: Kafka, topic: str, ends: Sequence[int]) -> Sequence[Sequence[Row]]:
    """All records of each partition, which are known to be so many."""

    async def read() -> Sequence[Sequence[Row]]:
        settings = KafkaSettings((kafka.bootstrap,))
        manner = ReadOptions("any", read_committed=True, with_keys=True)
        reader = Reader(lambda on_event, complain: KafkaRecords(settings, on_event, complain, manner))
        try:
            return [
                (await reader.read_to(Partition(topic, number), end)).rows for number, end in enumerate(ends)
            ]
        finally:
            await reader.records.close()

    return asyncio.run(read())


def make(kafka: Kafka, topic: str, partitions: int = 1, config: Mapping[str, str] = {}) -> None:
    """A topic that brokers tell of: they say that it is made a little before."""
    admin = AdminClient(kafka.client_config())
    new = NewTopic(topic, num_partitions=partitions, config=dict(config))
    admin.create_topics([new])[topic].result(WITHIN_S)
    wait_for(
        f"topic {topic}",
        lambda: (
            len(admin.list_topics(timeout=WITHIN_S).topics.get(topic, TopicMetadata()).partitions)
            == partitions
        ),
        within_s=WITHIN_S,
    )


def test_dead_letters_are_stored_in_kafka_as_they_were_given(
    kafka: Kafka, unique_name: str, client: Client
) -> None:
    make(kafka, unique_name)
    given = [
        dead_letter(unique_name, b"v", b"k", [("a", b"1"), ("n", None), ("a", b"2")], 5),
        dead_letter(unique_name, None, b"tombstone", timestamp_ms=3),
        dead_letter(unique_name, b"", b""),
        dead_letter(unique_name, None),
    ]

    async def write() -> None:
        async with dead_letter_writer(kafka, client) as dead_letters:
            await dead_letters.write(given[:3], WITHIN_S)
            await dead_letters.write(given[3:], WITHIN_S)

    asyncio.run(write())
    (rows,) = lying(kafka, unique_name, [4])
    assert [(row.value, row.key, tuple(row.headers), row.timestamp_ms) for row in rows] == [
        (each.value, each.key, tuple(each.headers), each.timestamp_ms) for each in given
    ]


def test_dead_letters_with_a_key_go_to_the_partition_of_kafkas_clients(
    kafka: Kafka, unique_name: str, client: Client
) -> None:
    make(kafka, unique_name, 3)
    keys = [b"%d" % number for number in range(30)]
    homes = [murmur2(key) % 3 for key in keys]

    async def write() -> None:
        async with dead_letter_writer(kafka, client) as dead_letters:
            await dead_letters.write([dead_letter(unique_name, None, key) for key in keys], WITHIN_S)

    asyncio.run(write())
    ends = [homes.count(number) for number in range(3)]
    for number, rows in enumerate(lying(kafka, unique_name, ends)):
        assert [row.key for row in rows] == [
            key for key, home in zip(keys, homes, strict=True) if home == number
        ]


def test_a_topic_that_does_not_exist_is_refused_until_it_is_made(
    kafka: Kafka, unique_name: str, client: Client
) -> None:
    async def write() -> None:
        refused = f"^the dead-letter topic '{unique_name}' does not exist; create it, or name another topic"
        async with dead_letter_writer(kafka, client) as dead_letters:
            with pytest.raises(Refused, match=refused):
                await dead_letters.write([dead_letter(unique_name, b"v")], WITHIN_S)
            make(kafka, unique_name)
            await dead_letters.write([dead_letter(unique_name, b"v")], WITHIN_S)

    asyncio.run(write())
    (rows,) = lying(kafka, unique_name, [1])
    assert [row.value for row in rows] == [b"v"]


def test_a_dead_letter_that_the_topic_does_not_take_is_refused_and_the_next_one_written(
    kafka: Kafka, unique_name: str, client: Client
) -> None:
    make(kafka, unique_name, config={"max.message.bytes": "10000"})

    async def write() -> None:
        async with dead_letter_writer(kafka, client) as dead_letters:
            with pytest.raises(Refused, match=r"Kafka rejected dead letters for .*too large"):
                await dead_letters.write([dead_letter(unique_name, bytes(20_000))], WITHIN_S)
            await dead_letters.write([dead_letter(unique_name, b"small")], WITHIN_S)

    asyncio.run(write())
    (rows,) = lying(kafka, unique_name, [1])
    assert [row.value for row in rows] == [b"small"]


def test_a_broker_that_is_away_is_said_in_time_and_written_to_when_it_is_back(client: Client) -> None:
    with running(settings=MORTAL) as kafka:
        make(kafka, "dead")

        async def write() -> None:
            async with dead_letter_writer(kafka, client) as dead_letters:
                await dead_letters.write([dead_letter("dead", b"before")], WITHIN_S)
                await asyncio.to_thread(kafka.broker(1).kill)
                with pytest.raises(
                    Unreachable, match="Kafka has not acknowledged 1 of 1 dead letters within 1 s"
                ):
                    await dead_letters.write([dead_letter("dead", b"never")], 1)
                with pytest.raises(Unreachable, match="connection refused by"):
                    await dead_letters.write([dead_letter("dead", b"never")], 1)
                # A process ends with the thread that started it: not in one of the loop's.
                kafka.broker(1).start()
                await dead_letters.write([dead_letter("dead", b"after")], WITHIN_S)

        asyncio.run(write())
        (rows,) = lying(kafka, "dead", [2])
        assert [row.value for row in rows] == [b"before", b"after"]


def test_small_dead_letters_that_are_too_large_together_are_written_by_the_python_client(
    kafka: Kafka, unique_name: str
) -> None:
    make(kafka, unique_name, config={"max.message.bytes": "10000"})
    values = [b"%d" % number * 3_000 for number in range(8)]

    async def write() -> None:
        async with dead_letter_writer(kafka, PythonDeadLetterWriter) as dead_letters:
            await dead_letters.write([dead_letter(unique_name, value, b"k") for value in values], WITHIN_S)

    asyncio.run(write())
    (rows,) = lying(kafka, unique_name, [len(values)])
    assert [row.value for row in rows] == values
