"""rota.Producer on a real Kafka broker: the same calls, and what only Kafka can refuse."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as Peer
from confluent_kafka import TopicPartition as Position

import rota
from rota import errors
from rota.metadata import GroupMetadata
from rota.producer.kafka_engine import encoded_group_metadata
from rota_proto.log.keys import murmur2
from tests.support.kafka import Kafka, running
from tests.support.kafka.membership import metadata_of

pytestmark = pytest.mark.kafka

WITHIN_S = 60
POLLS_MAX = 300
ENDINGS = (b"", b"a", b"ab", b"abc", b"abcd")


# In a process of its own: other clients of librdkafka start threads when they like.
THREADS_OF_A_PRODUCER = """
import gc, sys
from pathlib import Path
import rota

def threads():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith("rdk:")]

gc.disable()
with rota.Producer(sys.argv[1]) as producer:
    producer.send(sys.argv[2], b"v").result(float(sys.argv[3]))
    print("open:", "rdk:main" in threads())
print("closed:", threads())
"""


@pytest.fixture
def topic(kafka: Kafka, unique_name: str) -> str:
    """One with three partitions."""
    kafka.create_topic(unique_name, partitions=3)
    return unique_name


@pytest.fixture
def producer(kafka: Kafka) -> Iterator[rota.Producer]:
    with rota.Producer(kafka.bootstrap) as producer:
        yield producer


@pytest.fixture
def transactional(kafka: Kafka, unique_name: str) -> Iterator[rota.Producer]:
    with rota.Producer(kafka.bootstrap, transactional_id=unique_name) as producer:
        producer.init_transactions()
        yield producer


def read(kafka: Kafka, topic: str, count: int, *, group: str = "") -> list[bytes | None]:
    """The values of the topic, as a reader at read_committed gets them."""
    settings = {
        "group.id": group or topic,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer({**kafka.client_config(), **settings})
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=WITHIN_S)]
    finally:
        consumer.close()


def committed(kafka: Kafka, group: str, topic: str) -> int:
    """The group's offset in partition 0."""
    consumer = Consumer({**kafka.client_config(), "group.id": group})
    try:
        (found,) = consumer.committed([Position(topic, 0)], timeout=WITHIN_S)
        return found.offset
    finally:
        consumer.close()


class Group:
    """Consumers of one group, polled until what is awaited has come."""

    def __init__(self, kafka: Kafka, group: str, topic: str) -> None:
        self._config = {**kafka.client_config(), "group.id": group, "session.timeout.ms": 10_000}
        self._topic = topic
        self.members: list[Consumer] = []

    def join(self, **settings: str) -> Consumer:
        names = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = Consumer({**self._config, **names})
        consumer.subscribe([self._topic])
        self.members.append(consumer)
        return consumer

    def poll_until(self, true: Callable[[], bool]) -> None:
        for _ in range(POLLS_MAX):
            for member in self.members:
                member.poll(0.1)
            if true():
                return
        raise AssertionError("the group did not come that far")


@pytest.fixture
def group(kafka: Kafka, topic: str) -> Iterator[Group]:
    group = Group(kafka, topic, topic)
    yield group
    for member in group.members:
        member.close()


def test_a_record_arrives_as_it_was_sent(kafka: Kafka, producer: rota.Producer, topic: str) -> None:
    sent = producer.send(topic, b"value", b"key", 1, 1_700_000_000_000, [("a", b"1"), ("b", None)]).result(
        WITHIN_S
    )

    assert sent == rota.RecordMetadata(topic, 1, 0, 1_700_000_000_000)
    consumer = Consumer({**kafka.client_config(), "group.id": topic})
    consumer.assign([Position(topic, 1, 0)])
    (message,) = consumer.consume(1, timeout=WITHIN_S)
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"key", b"value", 1_700_000_000_000)
    assert message.headers() == [("a", b"1"), ("b", None)]
    consumer.close()


def test_keys_go_where_a_client_of_kafka_puts_them(kafka: Kafka, unique_name: str) -> None:
    partitions = 31
    kafka.create_topic(unique_name, partitions=partitions)
    keys = [word + bytes([number]) * number for number in range(40) for word in ENDINGS if word or number]
    found: dict[bytes | None, int | None] = {}
    peer = Peer({**kafka.client_config(), "partitioner": "murmur2_random"})
    for key in keys:
        peer.produce(
            unique_name, key=key, on_delivery=lambda _, sent: found.__setitem__(sent.key(), sent.partition())
        )
    assert peer.flush(WITHIN_S) == 0

    assert len(set(found.values())) > partitions // 2
    assert {key: murmur2(key) % partitions for key in keys} == found


def test_many_are_sent_at_once_and_acknowledged_one_by_one(producer: rota.Producer, topic: str) -> None:
    sent = producer.send_many(topic, [b"a", b"b", None], [b"k", b"k", b"k"]).result(WITHIN_S)

    assert [each.offset for each in sent] == [0, 1, 2]
    assert {each.partition for each in sent} == {murmur2(b"k") % 3}


def test_callbacks_serializers_interceptors_and_partitioner_work_as_on_rotas_log(
    kafka: Kafka, topic: str
) -> None:
    reported: list[tuple[int, object]] = []
    with rota.Producer(
        kafka.bootstrap,
        value_serializer=lambda _, value: str(value).encode(),
        partitioner=lambda topic, key, value, count: count - 1,
        on_delivery=lambda metadata, error: reported.append((metadata.partition, error)),
    ) as producer:
        producer.send(topic, 17).result(WITHIN_S)
    assert reported == [(2, None)]
    assert read(kafka, topic, 1) == [b"17"]


def test_callbacks_may_send_and_may_not_wait(kafka: Kafka, topic: str) -> None:
    left = [200]
    said: list[str] = []
    done = threading.Event()

    def send_more(metadata: rota.RecordMetadata, error: errors.RotaError | None) -> None:
        try:
            sending.flush()
        except errors.IllegalState as refused:
            said.append(str(refused))
        left[0] -= 1
        if left[0] > 0:
            sending.send(topic, b"%d" % left[0])
        else:
            done.set()

    with rota.Producer(kafka.bootstrap, on_delivery=send_more, linger_ms=0) as sending:
        sending.send(topic, b"first")
        assert done.wait(WITHIN_S)
    assert len(said) == 200
    assert len(read(kafka, topic, 200)) == 200


def test_topics_and_their_partitions_are_known(producer: rota.Producer, topic: str) -> None:
    assert producer.partitions_for(topic) == [0, 1, 2]


def test_a_topic_that_is_not_there_is_named(kafka: Kafka) -> None:
    with (
        rota.Producer(kafka.bootstrap, max_block_ms=1_000) as producer,
        pytest.raises(errors.UnknownTopicOrPartition, match="no-such-topic"),
    ):
        producer.partitions_for("no-such-topic")


def test_a_record_that_is_too_large_is_refused(kafka: Kafka, topic: str) -> None:
    with (
        rota.Producer(kafka.bootstrap, max_request_size=2000, batch_size=2000) as producer,
        pytest.raises(errors.RecordTooLarge),
    ):
        producer.send(topic, b"x" * 3000)


def test_a_closed_producer_leaves_no_threads(kafka: Kafka, topic: str) -> None:
    """Nor connections, which librdkafka would make again and again to a broker that ends later."""
    command = [sys.executable, "-c", THREADS_OF_A_PRODUCER, kafka.bootstrap, topic, str(WITHIN_S)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * WITHIN_S)
    assert done.stdout.splitlines() == ["open: True", "closed: []"], done.stderr


def test_a_closed_producer_takes_nothing(kafka: Kafka) -> None:
    with rota.Producer(kafka.bootstrap) as producer:
        pass
    with pytest.raises(errors.ProducerClosed):
        producer.flush()


def test_a_broker_that_is_not_there_fails_the_record_in_time(topic: str) -> None:
    with rota.Producer(
        "127.0.0.1:1", delivery_timeout_ms=500, request_timeout_ms=400, linger_ms=0, acks=1
    ) as producer:
        error = producer.send(topic, b"x").exception(WITHIN_S)
    assert isinstance(error, errors.TimedOut)


def test_only_what_was_committed_is_read(kafka: Kafka, transactional: rota.Producer, topic: str) -> None:
    def fail() -> None:
        with transactional.transaction():
            transactional.send(topic, b"aborted")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with transactional.transaction():
        transactional.send(topic, b"committed")

    assert read(kafka, topic, 1) == [b"committed"]


@pytest.fixture
def steady() -> Iterator[Kafka]:
    """A broker for those who freeze it: its own controller does not give it up for that, with all that it leads."""
    with running(settings={"broker.session.timeout.ms": "60000"}) as kafka:
        yield kafka


def test_the_next_transaction_ends_an_abort_first_that_was_not_decided(
    steady: Kafka, unique_name: str
) -> None:
    topic, broker = unique_name, steady.broker(1)
    steady.create_topic(topic, partitions=3)

    def fail(producer: rota.Producer) -> None:
        with producer.transaction():
            producer.send(topic, b"aborted").result(WITHIN_S)
            broker.signal(signal.SIGSTOP)
            raise ZeroDivisionError

    # A broker that has just created its log of transactions loads it for longer than the producer below waits.
    with rota.Producer(steady.bootstrap, transactional_id=unique_name) as first:
        first.init_transactions()
    with rota.Producer(steady.bootstrap, transactional_id=unique_name, max_block_ms=3_000) as producer:
        producer.init_transactions()
        try:
            with pytest.raises(ZeroDivisionError) as broken:
                fail(producer)
            assert "could not be aborted either" in str(broken.value.__notes__)
        finally:
            broker.signal(signal.SIGCONT)
        with producer.transaction():
            producer.send(topic, b"committed")

    assert read(steady, topic, 1) == [b"committed"]


def test_a_record_outside_of_a_transaction_is_refused(transactional: rota.Producer, topic: str) -> None:
    with pytest.raises(errors.IllegalState):
        transactional.send(topic, b"x")


def test_the_older_of_two_producers_is_fenced_and_says_so_from_then_on(
    kafka: Kafka, transactional: rota.Producer, topic: str, unique_name: str
) -> None:
    transactional.begin_transaction()
    with rota.Producer(kafka.bootstrap, transactional_id=unique_name) as successor:
        successor.init_transactions()
        transactional.send(topic, b"late")
        with pytest.raises(errors.RotaError) as first:
            transactional.commit_transaction()
        assert first.value.fatal
        with pytest.raises(errors.ProducerFenced, match="has failed and must be closed"):
            transactional.begin_transaction()
        with successor.transaction():
            successor.send(topic, b"new")
    assert read(kafka, topic, 1) == [b"new"]


@pytest.mark.parametrize("settings", [{}, {"group_instance_id": "instance-1"}])
def test_a_member_is_written_as_librdkafka_writes_it(group: Group, settings: dict[str, str]) -> None:
    member = group.join(**settings)
    group.poll_until(lambda: bool(member.assignment()))

    known = metadata_of(member)

    assert known.generation_id > 0
    assert known.member_id
    assert encoded_group_metadata(known) == member.consumer_group_metadata()


def test_offsets_of_a_member_count_with_the_transaction(
    kafka: Kafka, transactional: rota.Producer, group: Group, topic: str
) -> None:
    member = group.join()
    group.poll_until(lambda: bool(member.assignment()))

    with transactional.transaction():
        transactional.send(topic, b"made of it")
        transactional.send_offsets_to_transaction({(topic, 0): 17}, metadata_of(member))

    assert committed(kafka, topic, topic) == 17


def test_offsets_of_an_old_generation_are_refused(
    kafka: Kafka, transactional: rota.Producer, group: Group, topic: str
) -> None:
    member = group.join()
    group.poll_until(lambda: bool(member.assignment()))
    old = metadata_of(member)
    group.join()
    group.poll_until(lambda: metadata_of(member).generation_id > old.generation_id)

    transactional.begin_transaction()
    transactional.send(topic, b"of an old owner")
    with pytest.raises(errors.IllegalGeneration):
        transactional.send_offsets_to_transaction({(topic, 0): 17}, old)
    transactional.abort_transaction()

    with transactional.transaction():
        transactional.send_offsets_to_transaction({(topic, 0): 5}, metadata_of(member))
    assert committed(kafka, topic, topic) == 5


def test_an_asynchronous_producer_sends_in_order_and_in_transactions(
    kafka: Kafka, topic: str, unique_name: str
) -> None:
    async def story() -> None:
        async with rota.AsyncProducer(kafka.bootstrap, transactional_id=unique_name) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                futures = [await producer.send(topic, b"%d" % number, partition=0) for number in range(5)]
                many = await producer.send_many(topic, [b"5", b"6"], [b"key", b"key"])
            assert [(await future).offset for future in futures] == [0, 1, 2, 3, 4]
            assert len({sent.partition for sent in await many}) == 1

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))

    assert sorted(read(kafka, topic, 7), key=str) == [b"%d" % number for number in range(7)]


def test_no_transaction_spans_kafka_and_rotas_coordinator(kafka: Kafka, unique_name: str, topic: str) -> None:
    member = GroupMetadata(group_id="g", incarnation=1, generation_id=1, member_id="m")
    with rota.Producer(kafka.bootstrap, transactional_id=unique_name, coordination="Rota") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(errors.NotSupported, match="no transaction spans both"):
            producer.send_offsets_to_transaction({(topic, 0): 1}, member)
        producer.abort_transaction()
