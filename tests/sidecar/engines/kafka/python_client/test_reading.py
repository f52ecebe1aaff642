"""The shell of the Python client: its requests to a broker, and what it makes of the answers."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery.events import Bounds, FetchError, Read
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.python_client.reading import PythonRecords
from rota_sidecar.engines.kafka.python_client.record_set import decode
from rota_sidecar.engines.kafka.python_client.writing import PythonDeadLetterWriter
from rota_sidecar.engines.kafka.read_options import ReadOptions
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter, FetchLimits, OffsetAndTimestamp
from tests.sidecar.engines.kafka.python_client.fake_log import TOPIC, FakeLog, serving
from tests.sidecar.engines.kafka.python_client.record_batches import batch, rows
from tests.sidecar.engines.readers import Reader, rows_of

WITHIN_S = 60
P0, P1 = Partition(TOPIC, 0), Partition(TOPIC, 1)
COMMITTED = ReadOptions("g", read_committed=True, with_keys=False)
NOT_LEADER_OR_FOLLOWER = 6


def run(test: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WITHIN_S):
            await test

    asyncio.run(within())


@asynccontextmanager
async def reading(settings: KafkaSettings, options: ReadOptions = COMMITTED) -> AsyncIterator[Reader]:
    reader = Reader(lambda on_result, on_outage: PythonRecords(settings, on_result, on_outage, options))
    try:
        yield reader
    finally:
        await reader.records.close()


def test_a_partition_that_waits_for_records_delays_no_other_one() -> None:
    async def story() -> None:
        log = FakeLog()
        async with serving(log) as settings, reading(settings) as reader:
            waiting = reader.fetch(P0, 0)
            await log.is_waiting.wait()
            log.logs[1] = batch(rows(0, b"a"))
            found = await reader.read(P1, 0)
            assert [row.value for each in found.batches for row in rows_of(each)] == [b"a"]
            assert found.bounds == Bounds(0, 90)
            assert log.numbers_fetched()[:2] == [[0], [1]]
            assert not waiting.done()

    run(story())


def test_a_large_response_is_decoded_as_a_small_one_is() -> None:
    async def story() -> None:
        log = FakeLog()
        values = [b"%d" % number * 500 for number in range(300)]
        log.logs[0] = batch(rows(0, *values))
        async with serving(log) as settings, reading(settings) as reader:
            found = await reader.read(P0, 0)
            assert [row.value for each in found.batches for row in rows_of(each)] == values

    run(story())


def test_limits_of_fetches_are_sent_and_the_first_fetch_does_not_wait() -> None:
    async def story() -> None:
        log = FakeLog()
        log.logs[0] = batch(rows(0, b"a"))
        limits = FetchLimits(min_bytes=50, max_bytes=1_000, max_wait_ms=700)
        options = ReadOptions("g", read_committed=False, with_keys=False, limits=limits)
        async with serving(log) as settings, reading(settings, options) as reader:
            found = await reader.read(P0, 0)
            await log.is_waiting.wait()
        first, second, *_ = log.fetches
        assert (first.max_wait_ms, first.min_bytes, first.max_bytes, first.isolation_level) == (
            0,
            50,
            1_000,
            0,
        )
        assert (second.max_wait_ms, second.topics[0].partitions[0].partition_max_bytes) == (700, 1_000)
        assert second.topics[0].partitions[0].last_fetched_epoch == 0
        assert found.bounds == Bounds(0, 100)

    run(story())


def test_a_fetch_of_many_partitions_waits_for_longer() -> None:
    async def story() -> None:
        log = FakeLog(partitions=500)
        log.logs = [batch(rows(0, b"a"))] * 500
        async with serving(log) as settings, reading(settings) as reader:
            await asyncio.gather(*(reader.read(Partition(TOPIC, number), 0) for number in range(500)))
            await log.is_waiting.wait()
        assert [(len(fetch.topics[0].partitions), fetch.max_wait_ms) for fetch in log.fetches] == [
            (500, 0),
            (500, 500),
        ]

    run(story())


def test_an_error_of_the_leader_is_no_failure_and_no_outage() -> None:
    async def story() -> None:
        log = FakeLog()
        log.errors = [NOT_LEADER_OR_FOLLOWER, pb.UNKNOWN_LEADER_EPOCH]
        log.logs[0] = batch(rows(0, b"a"))
        async with serving(log) as settings, reading(settings) as reader:
            found = await reader.read(P0, 0)
            assert [row.value for each in found.batches for row in rows_of(each)] == [b"a"]
            assert len(log.fetches) >= 3
            assert reader.outages.empty()

    run(story())


def test_a_damaged_batch_is_named_with_the_reason() -> None:
    async def story() -> None:
        log = FakeLog()
        data = batch(rows(0, b"value"))
        log.logs[0] = data[:-3] + b"?" + data[-2:]
        async with serving(log) as settings, reading(settings) as reader:
            failed = await reader.failure(P0, 0)
            assert failed.fetch_error is FetchError.CORRUPT
            assert failed.message == (
                "the batch at offset 0 cannot be read (its checksum does not match its bytes); check the broker's disk, or "
                "skip it with `rota topics delete-records orders --partition 0 --before OFFSET`, which deletes all records "
                "before that offset"
            )

    run(story())


def test_a_batch_whose_length_is_damaged_is_named_and_not_fetched_for_ever() -> None:
    async def story() -> None:
        log = FakeLog(partitions=1)
        data = batch(rows(0, b"value"))
        log.logs[0] = data[:8] + b"\x00\xff" + data[10:]
        async with serving(log) as settings, reading(settings) as reader:
            failed = await reader.failure(P0, 0)
            assert failed.fetch_error is FetchError.CORRUPT
            assert "cannot be read (its length does not match its bytes)" in failed.message

    run(story())


def test_a_batch_that_is_cut_off_behind_another_partitions_records_is_fetched_again() -> None:
    async def story() -> None:
        log = FakeLog()
        data = batch(rows(0, b"a"))
        log.logs = [data, data[:-1]]
        async with serving(log) as settings, reading(settings) as reader:
            first, second = await asyncio.gather(reader.fetch(P0, 0), reader.fetch(P1, 0))
            assert isinstance(first, Read)
            assert second == Read(2, [], 0, Bounds(0, 90))
            await log.is_waiting.wait()
        assert log.numbers_fetched() == [[0, 1], [1, 0]]

    run(story())


def test_a_broker_that_is_not_there_is_an_outage_after_three_failures() -> None:
    async def story() -> None:
        async with serving(FakeLog()) as settings:
            pass
        async with reading(settings) as reader:
            reader.fetch(P0, 0)
            outage = await reader.outage()
            assert outage.startswith("no records can be read from Kafka (connection refused by 127.0.0.1:")

    run(story())


# Lookups


def test_offsets_are_looked_up_again_after_an_error_of_the_leader() -> None:
    async def story() -> None:
        log = FakeLog()
        async with serving(log) as settings, reading(settings) as reader:
            log.errors = [NOT_LEADER_OR_FOLLOWER]
            assert await reader.records.bounds([P0, P1, Partition(TOPIC, 2)], WITHIN_S) == {
                P0: Bounds(0, 90),
                P1: Bounds(0, 90),
            }
            log.errors = [0, NOT_LEADER_OR_FOLLOWER]
            assert await reader.records.at_times({P0: 5, P1: 6}, WITHIN_S) == {
                P0: OffsetAndTimestamp(90, 1_000),
                P1: OffsetAndTimestamp(90, 1_000),
            }

    run(story())


def test_offsets_that_are_not_returned_in_time_are_a_failure_with_the_reason() -> None:
    async def story() -> None:
        log = FakeLog()
        log.errors = [NOT_LEADER_OR_FOLLOWER] * 1_000
        async with serving(log) as settings, reading(settings) as reader:
            with pytest.raises(
                Unreachable, match=r"did not return offsets within 0.5 s \(error 6 of orders-0\); check"
            ):
                await reader.records.bounds([P0], 0.5)
            log.errors = [pb.TOPIC_AUTHORIZATION_FAILED]
            with pytest.raises(Refused, match="does not authorize this user to describe topic 'orders'"):
                await reader.records.bounds([P0], WITHIN_S)

    run(story())


# Dead letters


def test_dead_letters_are_sent_again_after_an_error_of_the_leader() -> None:
    async def story() -> None:
        log = FakeLog(partitions=1)
        dead_letters = [DeadLetter(TOPIC, b"k", value, (), 5) for value in (b"a", b"b")]
        async with serving(log) as settings:
            writer = PythonDeadLetterWriter(settings)
            log.errors = [NOT_LEADER_OR_FOLLOWER, pb.MESSAGE_TOO_LARGE]
            await writer.write(dead_letters, WITHIN_S)
            await writer.close()
        values = [
            [row.value for each in decode(data, 0, [], with_keys=False).batches for row in rows_of(each)]
            for data in log.produced
        ]
        assert values == [[b"a"], [b"b"]]

    run(story())
