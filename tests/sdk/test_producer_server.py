"""rota.Producer on a real Rota log: every record once, in order, and none of a transaction that did not commit."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.producer.futures import SendFuture
from rota.records import OutgoingRecord
from rota_proto.log.keys import murmur2
from tests.support.coordinator import Coordinator, serving
from tests.support.workdir import workdir

pytestmark = pytest.mark.process

WITHIN_S = 60
PARTITIONS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of one for all tests, which keep apart by their topics."""
    with workdir("producer") as folder, serving(folder) as coordinator:
        yield f"rota://{coordinator.address}"


@pytest.fixture
def topic(server: str, unique_name: str) -> str:
    rota.create_topics(server, {unique_name: PARTITIONS})
    return unique_name


@pytest.fixture
def producer(server: str) -> Iterator[rota.Producer]:
    with rota.Producer(server) as producer:
        yield producer


@pytest.fixture
def transactional(server: str, unique_name: str) -> Iterator[rota.Producer]:
    with rota.Producer(server, transactional_id=unique_name) as producer:
        producer.init_transactions()
        yield producer


def read(server: str, topic: str, *, committed: bool = True) -> list[rota.Record]:
    """All records of the topic, partition by partition."""
    with rota.LogReader(server, read_committed=committed) as reader:
        return [
            record
            for partition in range(PARTITIONS)
            for batch in reader.read(topic, partition)
            for record in batch
        ]


def values(records: list[rota.Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_a_record_arrives_as_it_was_sent(server: str, producer: rota.Producer, topic: str) -> None:
    headers = (("a", b"1"), ("b", None))
    sent = producer.send(topic, b"value", b"key", 1, 1_700_000_000_000, headers).result(WITHIN_S)

    assert sent == rota.RecordMetadata(topic, 1, 0, 1_700_000_000_000)
    assert read(server, topic) == [rota.Record(topic, 1, 0, 1_700_000_000_000, b"key", b"value", headers)]


def test_null_is_not_empty(server: str, producer: rota.Producer, topic: str) -> None:
    for value, key in ((None, b""), (b"", None), (None, None)):
        producer.send(topic, value, key, 0)
    producer.flush(WITHIN_S)

    assert [(record.value, record.key) for record in read(server, topic)] == [
        (None, b""),
        (b"", None),
        (None, None),
    ]


def test_records_of_a_key_stay_in_order_in_the_partition_of_the_key(
    server: str, producer: rota.Producer, topic: str
) -> None:
    keys = [b"%d" % (number % 7) for number in range(700)]
    for number, key in enumerate(keys):
        producer.send(topic, b"%d" % number, key)
    producer.flush(WITHIN_S)

    records = read(server, topic)
    assert sorted(int(record.value or b"") for record in records) == list(range(700))
    for key in set(keys):
        mine = [record for record in records if record.key == key]
        assert {record.partition for record in mine} == {murmur2(key) % PARTITIONS}
        assert [int(record.value or b"") for record in mine] == [
            number for number, each in enumerate(keys) if each == key
        ]


def test_many_threads_share_a_producer(server: str, topic: str) -> None:
    with rota.Producer(server, batch_size=2000) as producer:

        def send(thread: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d" % number, partition=thread % PARTITIONS, key=b"%d" % thread)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    records = read(server, topic)
    for sender in range(4):
        mine = [int(record.value or b"") for record in records if record.key == b"%d" % sender]
        assert mine == list(range(500))


def test_many_are_sent_at_once_and_acknowledged_one_by_one(
    server: str, producer: rota.Producer, topic: str
) -> None:
    sent = [b"%d" % number for number in range(20_000)]
    keys = [b"%d" % (number % 50) for number in range(20_000)]

    found = producer.send_many(topic, sent, keys).result(WITHIN_S)

    records = {(record.partition, record.offset): record for record in read(server, topic)}
    assert len(records) == len(found) == len(sent)
    assert [records[each.partition, each.offset].value for each in found] == sent
    assert [records[each.partition, each.offset].key for each in found] == keys


def test_more_than_the_buffer_holds_is_sent_bit_by_bit(server: str, topic: str) -> None:
    with rota.Producer(server, buffer_memory=20_000, batch_size=5_000) as producer:
        futures = [producer.send(topic, b"%06d" % number, partition=0) for number in range(5_000)]
        many = producer.send_many(topic, [b"x" * 100] * 2_000)
        assert len(many.result(WITHIN_S)) == 2_000
        assert [future.result(WITHIN_S).offset for future in futures] == sorted(
            future.result().offset for future in futures
        )

    assert len(read(server, topic)) == 7_000


def test_records_without_a_key_come_to_all_partitions(server: str, topic: str) -> None:
    with rota.Producer(server, batch_size=500) as producer:
        for _ in range(3_000):
            producer.send(topic, b"x" * 50)

    assert {record.partition for record in read(server, topic)} == set(range(PARTITIONS))


@pytest.mark.parametrize("acks", [1, "all"])
def test_an_acknowledged_record_has_an_offset(server: str, topic: str, acks: object) -> None:
    with rota.Producer(server, acks=acks) as producer:  # type: ignore[arg-type]
        assert producer.send(topic, b"x", partition=0).result(WITHIN_S).offset == 0


def test_without_acks_nobody_knows_where_a_record_lies(server: str, topic: str) -> None:
    with rota.Producer(server, acks=0) as producer:
        assert producer.send(topic, b"x", partition=0).result(WITHIN_S).offset == -1
        producer.flush(WITHIN_S)
        with rota.LogReader(server) as reader:
            (part,) = reader.fetch({(topic, 0): 0}, max_wait_ms=10_000)
    assert [record.value for record in part] == [b"x"]


class Stamping(rota.ProducerInterceptor):
    """An interceptor that changes what is sent, and notes what it is told."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, errors.RotaError | None]] = []

    @override
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return OutgoingRecord(record.topic, record.value, record.key, headers=[("stamp", b"1")])

    @override
    def on_acknowledgement(self, metadata: rota.RecordMetadata, error: errors.RotaError | None) -> None:
        self.acknowledged.append((metadata.offset, error))


def test_interceptors_serializers_and_partitioner_see_every_record(server: str, topic: str) -> None:
    stamping = Stamping()
    delivered: list[int] = []
    with rota.Producer(
        server,
        interceptors=[stamping],
        key_serializer=lambda _, key: str(key).encode(),
        value_serializer=lambda _, value: str(value).encode(),
        partitioner=lambda topic, key, value, count: int(key or b"0") % count,
        on_delivery=lambda metadata, error: delivered.append(metadata.partition),
    ) as producer:
        producer.send(topic, 10, 2)
        producer.send_many(topic, [11, 12], [2, 2])

    records = read(server, topic)
    assert [(record.partition, record.key, record.value) for record in records] == [
        (2, b"2", b"10"),
        (2, b"2", b"11"),
        (2, b"2", b"12"),
    ]
    assert all(list(record.headers) == [("stamp", b"1")] for record in records)
    assert stamping.acknowledged == [(0, None), (1, None), (2, None)]
    assert delivered == [2, 2, 2]


def test_a_callback_gets_the_future_with_its_result(producer: rota.Producer, topic: str) -> None:
    called = threading.Event()
    offsets: list[int] = []

    def record_offset(future: SendFuture) -> None:
        offsets.append(future.result().offset)
        called.set()

    producer.send(topic, b"x", partition=0).add_done_callback(record_offset)

    assert called.wait(WITHIN_S)
    assert offsets == [0]


def test_a_callback_that_would_wait_for_itself_raises(producer: rota.Producer, topic: str) -> None:
    said: list[str] = []
    called = threading.Event()

    def wait_for_itself(future: SendFuture) -> None:
        for call in (producer.flush, lambda: producer.partitions_for("other")):
            try:
                call()
            except errors.IllegalState as error:
                said.append(str(error))
        called.set()

    producer.send(topic, b"x").add_done_callback(wait_for_itself)

    assert called.wait(WITHIN_S)
    assert len(said) == 2
    assert "from a thread of the application" in said[0]


def test_a_callback_may_send(server: str, producer: rota.Producer, topic: str) -> None:
    called = threading.Event()

    def send_more(future: SendFuture) -> None:
        producer.send(topic, b"second").add_done_callback(lambda _: called.set())

    producer.send(topic, b"first").add_done_callback(send_more)

    assert called.wait(WITHIN_S)
    assert sorted(map(str, values(read(server, topic)))) == ["b'first'", "b'second'"]


def test_a_batch_that_no_log_takes_is_refused_at_once(server: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="lower max_request_size"):
        rota.Producer(server, max_request_size=2 << 20)


def test_a_process_that_was_forked_sends_too(server: str, topic: str) -> None:
    script = (
        "import os, sys, rota\n"
        "from rota.connection import background\n"
        "background()\n"
        "if os.fork() == 0:\n"
        "    with rota.Producer(sys.argv[1]) as producer: producer.send(sys.argv[2], b'of the child')\n"
        "    os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, server, topic]
    subprocess.run(command, check=True, timeout=WITHIN_S)

    assert values(read(server, topic)) == [b"of the child"]


def test_a_topic_that_is_not_there_is_named(producer: rota.Producer) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition, match="no-such-topic"):
        producer.send("no-such-topic", b"x")


def test_a_partition_that_is_not_there_is_named(producer: rota.Producer, topic: str) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition, match=r"\[7\], the topic has"):
        producer.send(topic, b"x", partition=7)


def test_a_topic_that_was_deleted_fails_its_records(server: str, producer: rota.Producer, topic: str) -> None:
    producer.send(topic, b"x").result(WITHIN_S)
    with rota.Topics(server) as topics:
        topics.delete([topic])

    assert isinstance(producer.send(topic, b"x").exception(WITHIN_S), errors.UnknownTopicOrPartition)
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.send(topic, b"x")


def test_a_closed_producer_says_so(server: str, topic: str) -> None:
    producer = rota.Producer(server)
    producer.send(topic, b"x")
    producer.close()

    for call in (
        lambda: producer.send(topic, b"x"),
        lambda: producer.send_many(topic, [b"x"]),
        lambda: producer.partitions_for(topic),
        producer.flush,
        producer.init_transactions,
    ):
        with pytest.raises(errors.ProducerClosed):
            call()
    producer.close()
    assert values(read(server, topic)) == [b"x"]


def test_new_partitions_are_found(server: str, topic: str) -> None:
    with (
        rota.Producer(server, metadata_max_age_ms=20, linger_ms=0) as producer,
        rota.Topics(server) as topics,
    ):
        producer.send(topic, b"x").result(WITHIN_S)
        topics.add_partitions({topic: 5})
        while len(producer.partitions_for(topic)) < 5:
            producer.send(topic, b"y").result(WITHIN_S)
        assert producer.send(topic, b"x", partition=4).result(WITHIN_S).partition == 4


def test_a_server_that_comes_back_gets_every_record_once(tmp_path: Path, unique_name: str) -> None:
    with serving(tmp_path) as coordinator:
        address = f"rota://{coordinator.address}"
        rota.create_topics(address, {unique_name: PARTITIONS})
        with rota.Producer(address, linger_ms=1, batch_size=2_000) as producer:
            futures = []
            for number in range(3_000):
                futures.append(producer.send(unique_name, b"%d" % number, b"%d" % (number % 5)))
                if number in (1_000, 2_000):
                    futures[-500].result(WITHIN_S)
                    coordinator.kill()
                    coordinator.start(f"--listen={address.removeprefix('rota://')}")
            offsets = {future.result(WITHIN_S)[1:3] for future in futures}
        records = read(address, unique_name)

    assert sorted(int(record.value or b"") for record in records) == list(range(3_000))
    assert len(offsets - {(partition, -1) for partition in range(PARTITIONS)}) > 2_000
    for key in range(5):
        mine = [int(record.value or b"") for record in records if record.key == b"%d" % key]
        assert mine == sorted(mine)


def test_transactions_go_on_over_kills_of_the_server(tmp_path: Path, unique_name: str) -> None:
    with serving(tmp_path) as coordinator:
        address = f"rota://{coordinator.address}"
        rota.create_topics(address, {unique_name: PARTITIONS})
        with rota.Producer(address, transactional_id="t", linger_ms=0, retry_backoff_ms=20) as producer:
            producer.init_transactions()
            for number in range(60):
                with producer.transaction():
                    sent = [producer.send(unique_name, b"%d" % number, partition=index) for index in (0, 1)]
                    if number % 20 == 10:
                        sent[0].result(WITHIN_S)
                    if number % 20 in (5, 10):
                        coordinator.kill()
                        coordinator.start(f"--listen={address.removeprefix('rota://')}")
        found = values(read(address, unique_name))

    assert found == [b"%d" % number for number in range(60)] * 2


def test_only_what_was_committed_is_read(server: str, transactional: rota.Producer, topic: str) -> None:
    def fail() -> None:
        with transactional.transaction():
            transactional.send(topic, b"aborted")
            transactional.flush(WITHIN_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with transactional.transaction():
        transactional.send(topic, b"committed")

    assert values(read(server, topic)) == [b"committed"]
    assert sorted(map(str, values(read(server, topic, committed=False)))) == ["b'aborted'", "b'committed'"]


def test_an_abort_fails_what_was_not_sent_yet(server: str, unique_name: str, topic: str) -> None:
    with rota.Producer(server, transactional_id=unique_name, linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send(topic, b"x")
        producer.abort_transaction()
        assert isinstance(future.exception(WITHIN_S), errors.TransactionAborted)
        with producer.transaction():
            producer.send(topic, b"y")
    assert values(read(server, topic)) == [b"y"]


def test_many_transactions_of_one_producer_follow_each_other(
    server: str, transactional: rota.Producer, topic: str
) -> None:
    for number in range(20):
        transactional.begin_transaction()
        transactional.send(topic, b"%d" % number, partition=0)
        transactional.send(topic, b"%d" % number, partition=1)
        if number % 2:
            transactional.commit_transaction()
        else:
            transactional.abort_transaction()

    odd = [b"%d" % number for number in range(20) if number % 2]
    assert values(read(server, topic)) == odd + odd


def test_an_empty_transaction_is_fine(server: str, transactional: rota.Producer, topic: str) -> None:
    with transactional.transaction():
        pass
    with transactional.transaction():
        transactional.send(topic, b"x")
    assert values(read(server, topic)) == [b"x"]


def test_the_older_of_two_producers_is_fenced_and_says_so_from_then_on(
    server: str, transactional: rota.Producer, topic: str, unique_name: str
) -> None:
    transactional.begin_transaction()
    transactional.send(topic, b"early").result(WITHIN_S)
    with rota.Producer(server, transactional_id=unique_name) as successor:
        successor.init_transactions()
        assert isinstance(transactional.send(topic, b"late").exception(WITHIN_S), errors.InvalidProducerEpoch)
        with pytest.raises(errors.TransactionAbortable):
            transactional.commit_transaction()
        with pytest.raises(errors.ProducerFenced):
            transactional.abort_transaction()
        for call in (transactional.begin_transaction, transactional.abort_transaction):
            with pytest.raises(errors.ProducerFenced, match="has failed and must be closed"):
                call()
        with successor.transaction():
            successor.send(topic, b"new")
    assert values(read(server, topic)) == [b"new"]


def test_calls_out_of_turn_say_what_comes_first(server: str, unique_name: str, topic: str) -> None:
    with rota.Producer(server, transactional_id=unique_name) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(errors.IllegalState, match="init_transactions first"):
                call()
        producer.init_transactions()
        with pytest.raises(errors.IllegalState, match="begin_transaction first"):
            producer.send(topic, b"x")
        with pytest.raises(errors.IllegalState, match="begin_transaction first"):
            producer.commit_transaction()


def test_a_producer_without_transactional_id_has_no_transactions(producer: rota.Producer) -> None:
    with pytest.raises(errors.IllegalState, match="set transactional_id"):
        producer.init_transactions()


def test_closing_aborts_the_open_transaction(server: str, unique_name: str, topic: str) -> None:
    producer = rota.Producer(server, transactional_id=unique_name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"x").result(WITHIN_S)
    producer.close()

    assert values(read(server, topic)) == []
    with rota.LogReader(server, read_committed=True) as reader:
        partition = next(record.partition for record in read(server, topic, committed=False))
        (part,) = reader.fetch({(topic, partition): 0}, max_wait_ms=0)
    assert part.last_stable_offset == part.high_watermark


def test_a_transaction_that_took_too_long_is_aborted_by_the_server(
    server: str, unique_name: str, topic: str
) -> None:
    with rota.Producer(server, transactional_id=unique_name, transaction_timeout_ms=100) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sent = producer.send(topic, b"x", partition=0).result(WITHIN_S)
        with rota.LogReader(server, read_committed=True) as reader:
            # Behind the marker of the abort.
            while reader.fetch({(topic, 0): sent.offset}, max_wait_ms=500)[0].next_offset <= sent.offset:
                pass
        with pytest.raises(errors.ProducerFenced):
            producer.commit_transaction()
    assert values(read(server, topic)) == []


def test_a_coordinator_without_a_log_is_named(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.start("--no-log")
    try:
        with pytest.raises(errors.NotSupported, match="--log"):
            rota.create_topics(f"rota://{coordinator.address}", {"any": 1})
    finally:
        coordinator.stop()
