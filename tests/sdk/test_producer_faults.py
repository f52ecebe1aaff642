"""A producer whose answers are lost, late or malformed. Only an answer decides an outcome."""

import asyncio
import random
from collections.abc import Iterator
from typing import Unpack

import pytest

import rota
from rota import errors
from rota.connection import background
from rota.metadata import GroupMetadata
from rota.producer.accumulator import Accumulator
from rota.producer.options import Settings
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.sdk.faulty_log import TOPIC, WITHIN_S, Fault, FaultyLog, faulty_log

pytestmark = pytest.mark.process


def quick(address: str, **settings: Unpack[Settings]) -> rota.Producer:
    """A producer that tries again soon."""
    all_settings: Settings = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "linger_ms": 0, **settings}
    return rota.Producer(address, **all_settings)


@pytest.fixture
def served() -> Iterator[tuple[FaultyLog, str]]:
    with faulty_log() as served:
        yield served


@pytest.fixture
def log(served: tuple[FaultyLog, str]) -> FaultyLog:
    return served[0]


@pytest.fixture
def address(served: tuple[FaultyLog, str]) -> str:
    return served[1]


@pytest.fixture
def producer(address: str) -> Iterator[rota.Producer]:
    with quick(address) as producer:
        yield producer


@pytest.fixture
def transactional(address: str) -> Iterator[rota.Producer]:
    with quick(address, transactional_id="t") as producer:
        producer.init_transactions()
        yield producer


def test_a_lost_answer_writes_no_record_twice(log: FaultyLog, producer: rota.Producer) -> None:
    log.fail("Produce", None, Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.LOST_ANSWER, None)

    offsets = [
        producer.send(TOPIC, b"%d" % number, partition=0).result(WITHIN_S).offset for number in range(3)
    ]

    assert offsets == [0, 1, 2]
    assert log.ends()[0] == 3
    assert [sequence for *_, sequence in log.batches()] == [0, 1, 1, 1, 1, 2]


def test_without_idempotence_a_lost_answer_writes_a_record_twice(log: FaultyLog, address: str) -> None:
    log.fail("Produce", Fault.LOST_ANSWER)
    with quick(address, enable_idempotence=False) as producer:
        producer.send(TOPIC, b"x", partition=0).result(WITHIN_S)

    assert log.ends()[0] == 2
    assert {(producer_id, sequence) for _, producer_id, _, sequence in log.batches()} == {(-1, -1)}


@pytest.mark.parametrize(
    "code", [codes.KAFKA_STORAGE_ERROR, codes.COORDINATOR_LOAD_IN_PROGRESS, codes.REQUEST_TIMED_OUT]
)
def test_a_passing_error_is_waited_out(
    log: FaultyLog, producer: rota.Producer, code: codes.ErrorCode.ValueType
) -> None:
    log.fail("Produce", code, code)

    assert producer.send(TOPIC, b"x", partition=0).result(WITHIN_S).offset == 0
    assert len(log.produced()) == 3


def test_only_the_partitions_that_failed_are_sent_again(log: FaultyLog, address: str) -> None:
    log.fail("Produce", codes.KAFKA_STORAGE_ERROR)
    with quick(address, linger_ms=50) as producer:
        futures = [producer.send(TOPIC, b"x", partition=index) for index in range(3)]
        assert [future.result(WITHIN_S).offset for future in futures] == [0, 0, 0]

    first, second = log.produced()
    assert [part.index for part in second.partitions] == [first.partitions[0].index]
    assert log.ends() == {0: 1, 1: 1, 2: 1}


def test_a_record_that_cannot_be_encoded_fails_without_those_of_other_partitions(
    log: FaultyLog, address: str
) -> None:
    # UTF-8 has no bytes for one half of a surrogate pair.
    headers = [("\ud800", b"")]
    with quick(address, linger_ms=50) as producer:
        futures = [
            producer.send(TOPIC, b"x", partition=index, headers=headers if index == 1 else None)
            for index in range(3)
        ]
        with pytest.raises(errors.InvalidArgument, match="cannot be sent"):
            futures[1].result(WITHIN_S)
        assert [futures[index].result(WITHIN_S).offset for index in (0, 2)] == [0, 0]

    (request,) = log.produced()
    assert [part.index for part in request.partitions] == [0, 2]


def test_an_error_that_stays_fails_the_record_and_leaves_no_gap(
    log: FaultyLog, producer: rota.Producer
) -> None:
    log.fail("Produce", None, codes.INVALID_RECORD)

    producer.send(TOPIC, b"a", partition=0).result(WITHIN_S)
    refused = producer.send(TOPIC, b"b", partition=0).exception(WITHIN_S)
    assert isinstance(refused, errors.InvalidRecord)
    assert str(refused) == "orders[0]: refused on purpose (INVALID_RECORD)"
    assert producer.send(TOPIC, b"c", partition=0).result(WITHIN_S).offset == 1
    assert [sequence for *_, sequence in log.batches()] == [0, 1, 1]


def test_a_duplicate_whose_offset_is_unknown_counts_as_sent(log: FaultyLog, producer: rota.Producer) -> None:
    log.fail("Produce", codes.DUPLICATE_SEQUENCE_NUMBER)

    assert producer.send(TOPIC, b"x", partition=0).result(WITHIN_S).offset == -1
    assert producer.send(TOPIC, b"y", partition=1).result(WITHIN_S).offset == 0


@pytest.mark.parametrize("code", [codes.OUT_OF_ORDER_SEQUENCE_NUMBER, codes.UNKNOWN_PRODUCER_ID])
def test_a_log_that_forgot_the_producer_is_written_to_by_a_new_one(
    log: FaultyLog, producer: rota.Producer, code: codes.ErrorCode.ValueType
) -> None:
    producer.send(TOPIC, b"a", partition=0).result(WITHIN_S)
    log.fail("Produce", code)

    assert producer.send(TOPIC, b"b", partition=0).result(WITHIN_S).offset == 1

    (_, first, _, _), (_, second, _, again), (_, third, _, anew) = log.batches()
    assert (first, again, anew) == (second, 1, 0)
    assert third != second


def test_a_record_without_answer_fails_in_time_and_its_numbers_are_given_up(
    log: FaultyLog, address: str
) -> None:
    with quick(address, delivery_timeout_ms=200, request_timeout_ms=150) as producer:
        log.fail("Produce", *[Fault.HANG] * 5)
        assert isinstance(producer.send(TOPIC, b"a", partition=0).exception(WITHIN_S), errors.TimedOut)
        log.fail("Produce")
        producer.send(TOPIC, b"b", partition=0).result(WITHIN_S)

    *before, after = log.batches()
    assert {each[1] for each in before} != {after[1]}
    assert after[3] == 0
    # The first is in the log, though nobody knows: it was sent twice under the same number.
    assert log.ends()[0] == 2


def test_attempts_are_counted(log: FaultyLog, address: str) -> None:
    log.fail("Produce", *[codes.KAFKA_STORAGE_ERROR] * 5)
    with quick(address, retries=2) as producer:
        error = producer.send(TOPIC, b"x", partition=0).exception(WITHIN_S)

    assert isinstance(error, errors.KafkaStorageError)
    assert len(log.produced()) == 3


def test_an_unknown_caller_fails_at_once(log: FaultyLog, producer: rota.Producer) -> None:
    log.fail("DescribeTopics", Fault.NOT_KNOWN)

    with pytest.raises(errors.AuthenticationFailed, match="credentials"):
        producer.send(TOPIC, b"x")


def test_a_server_that_cannot_be_reached_is_named() -> None:
    with (
        rota.Producer("rota://127.0.0.1:1", max_block_ms=200) as producer,
        pytest.raises(errors.Disconnected, match=r"127\.0\.0\.1:1 cannot be reached"),
    ):
        producer.send(TOPIC, b"x")


def test_a_full_buffer_is_refused_in_time(log: FaultyLog, address: str) -> None:
    with quick(address, buffer_memory=500, batch_size=200, max_block_ms=100) as producer:
        producer.partitions_for(TOPIC)
        log.open.clear()
        with pytest.raises(errors.BufferExhausted, match="buffer_memory"):
            producer.send_many(TOPIC, [b"x" * 100] * 20)
        log.open.set()


def test_requests_under_way_are_bounded_and_a_partition_is_in_one_of_them(
    log: FaultyLog, address: str
) -> None:
    with quick(address, max_in_flight_requests_per_connection=2, batch_size=150) as producer:
        futures = [producer.send(TOPIC, b"x" * 100, partition=number % 3) for number in range(60)]
        for future in futures:
            future.result(WITHIN_S)

    assert log.most_together <= 2
    assert max(len(part.batches) for request in log.produced() for part in request.partitions) <= 5
    offsets = [future.result().offset for future in futures]
    assert [offsets[number::3] for number in range(3)] == [list(range(20))] * 3


def test_a_commit_whose_answer_is_lost_is_asked_for_again(
    log: FaultyLog, transactional: rota.Producer
) -> None:
    log.fail("EndTransaction", Fault.LOST_ANSWER, Fault.LOST_REQUEST)
    with transactional.transaction():
        transactional.send(TOPIC, b"x", partition=0)
    with transactional.transaction():
        transactional.send(TOPIC, b"y", partition=0)

    ends = [request for request in log.seen if isinstance(request, pb.EndTransactionRequest)]
    assert [(end.producer_epoch, end.commit) for end in ends] == [(0, True), (0, True), (0, True), (1, True)]


def test_offsets_whose_commit_timed_out_in_the_coordinator_are_sent_again(
    log: FaultyLog, transactional: rota.Producer
) -> None:
    log.fail("TxnCommitOffsets", codes.REQUEST_TIMED_OUT, Fault.LOST_ANSWER, codes.REQUEST_TIMED_OUT)
    group = GroupMetadata(group_id="g", incarnation=0, generation_id=-1, member_id="")
    with transactional.transaction():
        transactional.send_offsets_to_transaction({(TOPIC, 0): 7}, group)

    sent = [request for request in log.seen if isinstance(request, codes.TxnCommitOffsetsRequest)]
    assert [request.topics[0].partitions[0].offset for request in sent] == [7] * 4
    ends = [request for request in log.seen if isinstance(request, pb.EndTransactionRequest)]
    assert [end.commit for end in ends] == [True]


def test_nothing_but_the_same_commit_follows_one_whose_outcome_is_unknown(
    log: FaultyLog, address: str
) -> None:
    with quick(address, transactional_id="t", max_block_ms=150) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"x", partition=0).result(WITHIN_S)
        log.fail("EndTransaction", *[Fault.LOST_ANSWER] * 100)
        with pytest.raises(errors.UndecidedCommit, match="commit again"):
            producer.commit_transaction()
        with pytest.raises(errors.IllegalState, match="commit_transaction again"):
            producer.abort_transaction()
        with pytest.raises(errors.RotaError):
            producer.send(TOPIC, b"y")

        log.fail("EndTransaction")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()


def fail_inside(producer: rota.Producer) -> BaseException:
    """An application that breaks in mid-transaction; what it then gets."""

    def fail() -> None:
        with producer.transaction():
            producer.send(TOPIC, b"aborted", partition=0).result(WITHIN_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as broken:
        fail()
    return broken.value


def test_the_next_transaction_ends_an_abort_first_that_was_not_decided(log: FaultyLog, address: str) -> None:
    with quick(address, transactional_id="t", max_block_ms=150) as producer:
        producer.init_transactions()
        log.fail("EndTransaction", *[Fault.LOST_REQUEST] * 100)
        assert "could not be aborted either" in str(fail_inside(producer).__notes__)
        # As long as that lasts, nothing begins.
        with pytest.raises((errors.Disconnected, errors.TimedOut)):
            producer.begin_transaction()
        log.fail("EndTransaction")
        with producer.transaction():
            producer.send(TOPIC, b"counts", partition=0)

    ends = [request for request in log.seen if isinstance(request, pb.EndTransactionRequest)]
    assert not any(end.commit for end in ends[:-1])
    assert ends[-1].commit


def test_an_async_producer_ends_an_undecided_abort_too(log: FaultyLog, address: str) -> None:
    async def story() -> None:
        async with rota.AsyncProducer(
            address, transactional_id="t", max_block_ms=150, retry_backoff_ms=5, linger_ms=0
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"aborted", partition=0)
            log.fail("EndTransaction", *[Fault.LOST_REQUEST] * 100)
            with pytest.raises((errors.Disconnected, errors.TimedOut)):
                await producer.abort_transaction()
            log.fail("EndTransaction")
            async with producer.transaction():
                await producer.send(TOPIC, b"counts", partition=0)

    asyncio.run(story())
    ends = [request for request in log.seen if isinstance(request, pb.EndTransactionRequest)]
    assert [end.commit for end in ends[-2:]] == [False, True]


def test_a_record_that_fails_spoils_its_transaction_alone(
    log: FaultyLog, transactional: rota.Producer
) -> None:
    log.fail("Produce", codes.INVALID_RECORD)
    transactional.begin_transaction()
    transactional.send(TOPIC, b"x", partition=0)
    with pytest.raises(errors.TransactionAbortable, match="INVALID_RECORD"):
        transactional.commit_transaction()
    transactional.abort_transaction()

    with transactional.transaction():
        transactional.send(TOPIC, b"y", partition=0)


def test_an_unknown_outcome_of_a_record_spoils_its_transaction(log: FaultyLog, address: str) -> None:
    with quick(address, transactional_id="t", delivery_timeout_ms=100, request_timeout_ms=80) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        log.fail("Produce", *[Fault.HANG] * 20)
        assert isinstance(producer.send(TOPIC, b"x", partition=0).exception(WITHIN_S), errors.TimedOut)
        log.fail("Produce")
        with pytest.raises(errors.TransactionAbortable):
            producer.send(TOPIC, b"y", partition=0)
        producer.abort_transaction()
        with producer.transaction():
            assert producer.send(TOPIC, b"z", partition=0).result(WITHIN_S)

    assert log.batches()[-1][2:] == (1, 0)


@pytest.mark.parametrize("turns", range(8))
def test_an_abort_at_any_moment_decides_every_record(log: FaultyLog, address: str, turns: int) -> None:
    async def story() -> None:
        async with rota.AsyncProducer(address, transactional_id="t", linger_ms=0) as producer:
            await producer.init_transactions()
            await producer.partitions_for(TOPIC)
            await producer.begin_transaction()
            future = await producer.send(TOPIC, b"x", partition=0)
            for _ in range(turns):
                await asyncio.sleep(0)
            await producer.abort_transaction()
            with pytest.raises(errors.TransactionAborted):
                await future
            async with producer.transaction():
                assert await producer.send_and_wait(TOPIC, b"y", partition=0)

    background().run(story(), WITHIN_S)


def test_init_transactions_is_tried_until_it_is_answered(log: FaultyLog, address: str) -> None:
    log.fail("InitProducer", Fault.LOST_REQUEST, codes.CONCURRENT_TRANSACTIONS, Fault.LOST_ANSWER)
    with quick(address, transactional_id="t") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, b"x").result(WITHIN_S)
    # The lost answer had an epoch too.
    assert log.batches()[0][2] == 1


def test_whatever_is_lost_every_record_is_written_once_and_in_order(
    log: FaultyLog, address: str, seed: int
) -> None:
    chance = random.Random(seed)
    kinds = (None, None, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.HANG, codes.KAFKA_STORAGE_ERROR)
    log.fail("Produce", *(chance.choice(kinds) for _ in range(400)))
    with quick(
        address, batch_size=40, request_timeout_ms=50, max_in_flight_requests_per_connection=3
    ) as producer:
        sent = [
            (number % 3, producer.send(TOPIC, b"%d" % number, partition=number % 3)) for number in range(900)
        ]
        for _, future in sent:
            future.result(WITHIN_S)

    for index in range(3):
        assert log.values(index) == [b"%d" % number for number in range(index, 900, 3)]
    assert len(log.produced()) > 30


def test_a_producer_that_is_broken_leaves_nobody_waiting(
    log: FaultyLog, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with quick(address) as producer:
        producer.send(TOPIC, b"x").result(WITHIN_S)
        monkeypatch.setattr(Accumulator, "take", lambda self, now_s: 1 // 0)

        error = producer.send(TOPIC, b"x").exception(WITHIN_S)
        assert error is not None
        assert error.fatal
        with pytest.raises(errors.RotaError, match="ZeroDivisionError"):
            producer.send(TOPIC, b"x")
    assert "the producer failed unexpectedly" in caplog.text


def test_a_callback_that_raises_stops_nothing(
    log: FaultyLog, producer: rota.Producer, caplog: pytest.LogCaptureFixture
) -> None:
    future = producer.send(TOPIC, b"x")
    future.result(WITHIN_S)
    future.add_done_callback(lambda _: 1 // 0)

    assert "a callback raised" in caplog.text
    producer.send(TOPIC, b"y").result(WITHIN_S)
