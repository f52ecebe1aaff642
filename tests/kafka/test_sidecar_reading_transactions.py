"""Records of transactions and of compressed batches of a real Kafka, read as deliveries read them."""

import asyncio

import pytest

from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.read_options import ReadOptions
from tests.kafka.sidecar_reading import CLIENTS, WITHIN_S, Client, Writer, play
from tests.sidecar.engines.readers import Reader
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client that reads Kafka's records."""
    return CLIENTS[request.param]


@pytest.fixture
def topic(kafka: Kafka, unique_name: str) -> str:
    kafka.create_topic(unique_name)
    return unique_name


@pytest.fixture
def writer(kafka: Kafka, topic: str) -> Writer:
    return Writer(kafka, topic)


@pytest.fixture
def transactional(kafka: Kafka, topic: str) -> Writer:
    writer = Writer(kafka, topic, {"transactional.id": topic})
    writer.producer.init_transactions(WITHIN_S)
    return writer


def test_markers_and_what_was_aborted_are_passed_over_and_are_no_lag(
    kafka: Kafka, topic: str, transactional: Writer, client: Client
) -> None:
    for value, commit in ((b"first", True), (b"never", False), (b"counts", True), (b"never", False)):
        transactional.transact(value, commit=commit)

    async def story(reader: Reader) -> None:
        passage = await reader.read_to(Partition(topic, 0), 8)
        assert (passage.values, passage.offsets) == ([b"first", b"counts"], [0, 4])
        assert (passage.next_offset, passage.bounds) == (8, Bounds(0, 8))

    play(kafka, story, client=client)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_each_codec_and_of_transactions_come_as_they_were_written(
    kafka: Kafka, topic: str, codec: str, client: Client
) -> None:
    writer = Writer(kafka, topic, {"transactional.id": f"{topic}-{codec}", "compression.type": codec})
    writer.producer.init_transactions(WITHIN_S)
    values = [b'{"order": %d, "state": "%b"}' % (number, b"paid" * (number % 40)) for number in range(3_000)]
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"%d" % len(codec)), ("empty", None)]
    for start in range(0, len(values), 500):
        for commit in (False, True):
            writer.producer.begin_transaction()
            for value in values[start : start + 500]:
                writer.producer.produce(topic, value, b"k", 0, headers=headers)
            end = writer.producer.commit_transaction if commit else writer.producer.abort_transaction
            # An abort discards what is not sent yet.
            assert writer.producer.flush(WITHIN_S) == 0
            end(WITHIN_S)

    async def story(reader: Reader) -> None:
        passage = await reader.read_to(Partition(topic, 0), 2 * len(values) + 12)
        assert passage.values == values
        assert {row.key for row in passage.rows} == {b"k"}
        assert {tuple(row.headers) for row in passage.rows} == {tuple(headers)}
        assert passage.bounds == Bounds(0, 2 * len(values) + 12)

    play(kafka, story, ReadOptions("any-group", read_committed=True, with_keys=True), client=client)


def test_an_open_transaction_ends_what_may_be_read(
    kafka: Kafka, topic: str, transactional: Writer, writer: Writer, client: Client
) -> None:
    writer.write(b"before")
    transactional.producer.begin_transaction()
    transactional.write(b"held")
    writer.write(b"behind")

    async def story(reader: Reader) -> None:
        here, delivery_epoch = Partition(topic, 0), reader.open()
        passage = await reader.read_to(here, 1, delivery_epoch=delivery_epoch)
        while passage.bounds != Bounds(0, 1):
            passage = passage.with_more(await reader.read(here, 1, delivery_epoch=delivery_epoch))
        assert passage.values == [b"before"]
        assert await reader.records.bounds([here], WITHIN_S) == {here: Bounds(0, 1)}
        waiting = asyncio.create_task(reader.read_to(here, 4, offset=1, delivery_epoch=delivery_epoch))
        await asyncio.to_thread(transactional.producer.commit_transaction, WITHIN_S)
        assert (await waiting).values == [b"held", b"behind"]

    play(kafka, story, client=client)


def test_those_who_want_everything_see_what_is_not_committed(
    kafka: Kafka, topic: str, transactional: Writer, client: Client
) -> None:
    transactional.producer.begin_transaction()
    transactional.write(b"open")

    async def story(reader: Reader) -> None:
        here = Partition(topic, 0)
        assert (await reader.read_to(here, 1)).values == [b"open"]
        assert await reader.records.bounds([here], WITHIN_S) == {here: Bounds(0, 1)}

    play(kafka, story, ReadOptions("any-group", read_committed=False, with_keys=False), client=client)
