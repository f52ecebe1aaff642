"""`rota.confluent` has the methods of confluent-kafka, with the effects that they have there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import rota
from rota import confluent, errors
from rota.confluent import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, TopicPartition
from rota.connection import background
from rota.testing import Group
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from tests.sdk.faulty_log import TOPIC, FaultyLog, faulty_log
from tests.support.coordinator import serving
from tests.support.tree import REPO

WAIT_S = 60.0
# For what must not come.
SOON_S = 0.05
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def group() -> Iterator[Group]:
    with Group(partitions=2) as made:
        for number in range(10):
            made.send("orders", b"%d" % number, b"key", partition=0)
        yield made


def consuming(group: Group, **settings: Any) -> confluent.Consumer:  # noqa: ANN401  those of a consumer
    return confluent.Consumer.over(group.consumer(enable_auto_commit=False, **settings))


def next_message(consumer: confluent.Consumer) -> confluent.Message:
    message = consumer.poll(WAIT_S)
    assert message is not None
    return message


def test_a_poll_returns_one_message_and_none_when_there_is_no_more(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.subscribe(["orders"])
        messages = [next_message(consumer) for _ in range(10)]
        assert [message.value() for message in messages] == [b"%d" % number for number in range(10)]
        first = messages[0]
        assert (first.topic(), first.partition(), first.offset(), first.key()) == ("orders", 0, 0, b"key")
        assert (first.headers(), first.error(), len(first)) == (None, None, 1)
        assert first.timestamp() == (confluent.TIMESTAMP_CREATE_TIME, group.records("orders")[0].timestamp)
        assert consumer.poll(SOON_S) is None


def test_several_messages_are_consumed_at_once(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.consume(0, WAIT_S) == []
        assert [message.offset() for message in consumer.consume(4, WAIT_S)] == [0, 1, 2, 3]
        assert [message.offset() for message in consumer.consume(100, WAIT_S)] == [4, 5, 6, 7, 8, 9]


def test_a_commit_covers_a_message_or_offsets_or_all_that_is_consumed(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.subscribe(["orders"])
        message, _ = next_message(consumer), next_message(consumer)
        committed = consumer.commit(message=message, asynchronous=False)
        assert committed is not None
        assert [(each, each.offset) for each in committed] == [(P0, 1)]
        assert group.committed == {rota.TopicPartition("orders", 0): 1}
        assert consumer.commit(asynchronous=False) is None
        assert [each.offset for each in consumer.committed([P0, P1])] == [2, OFFSET_INVALID]
        consumer.commit(offsets=[TopicPartition("orders", 0, 7, "so far")], asynchronous=False)
        (found,) = consumer.committed([P0])
        assert (found.offset, found.metadata) == (7, "so far")
        with pytest.raises(confluent.KafkaException, match=r"orders\[1\] has no offset to commit"):
            consumer.commit(offsets=[P1])
        with pytest.raises(confluent.KafkaException, match="either a message or offsets"):
            consumer.commit(message, [P1])


def test_asynchronous_commits_are_the_default(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.commit(next_message(consumer)) is None
    assert group.committed[rota.TopicPartition("orders", 0)] == 1


Call = tuple[str, list[TopicPartition]]


def test_callbacks_get_the_consumer_and_set_offsets_by_assigning(group: Group) -> None:
    calls: list[Call] = []

    def assigned(consumer: confluent.Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("assigned", partitions))
        for partition in partitions:
            partition.offset = 8 if partition == P0 else OFFSET_BEGINNING
        consumer.assign(partitions)

    def revoked(consumer: confluent.Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("revoked", partitions))
        consumer.commit(asynchronous=False)
        consumer.unassign()

    with consuming(group) as consumer:
        consumer.subscribe(["orders"], on_assign=assigned, on_revoke=revoked)
        assert next_message(consumer).offset() == 8
        assert consumer.assignment() == [P0, P1]
        group.take_away(("orders", 1))
        while len(consumer.assignment()) > 1:
            consumer.poll(SOON_S)
        group.lose(("orders", 0))
        while len(with_partitions(calls)) < 3:
            consumer.poll(SOON_S)
    assert with_partitions(calls)[:3] == [("assigned", [P0, P1]), ("revoked", [P1]), ("revoked", [P0])]


def with_partitions(calls: list[Call]) -> list[Call]:
    return [(kind, partitions) for kind, partitions in calls if partitions]


def test_partitions_assigned_manually_begin_at_their_offsets(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.assign([TopicPartition("orders", 0, 9)])
        assert next_message(consumer).offset() == 9
        consumer.incremental_assign([P1])
        assert consumer.assignment() == [P0, P1]
        consumer.incremental_unassign([P0])
        assert consumer.assignment() == [P1]
        consumer.unassign()
        assert consumer.assignment() == []


def test_a_seek_knows_both_ends_and_positions_follow(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.assign([P0])
        for offset, position in ((5, 5), (OFFSET_END, 10), (OFFSET_BEGINNING, 0)):
            consumer.seek(TopicPartition("orders", 0, offset))
            assert [each.offset for each in consumer.position([P0])] == [position]
        assert consumer.get_watermark_offsets(P0) == (0, 10)
        late = TopicPartition("orders", 0, group.now_ms + 1)
        assert [each.offset for each in consumer.offsets_for_times([late])] == [OFFSET_END]
        early = TopicPartition("orders", 0, 0)
        assert [each.offset for each in consumer.offsets_for_times([early])] == [0]


def test_topics_are_listed_with_their_partitions(group: Group) -> None:
    group.create_topic("payments", 1)
    with consuming(group) as consumer:
        found = consumer.list_topics(timeout=WAIT_S).topics
        assert {name: list(each.partitions) for name, each in found.items()} == {
            "orders": [0, 1],
            "payments": [0],
        }
        (orders,) = consumer.list_topics("orders").topics.values()
        assert (orders.topic, orders.error, orders.partitions[1].id) == ("orders", None, 1)
        (missing,) = consumer.list_topics("nothing").topics.values()
        assert isinstance(missing.error, errors.UnknownTopicOrPartition)


def test_paused_partitions_are_silent(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.subscribe(["orders"])
        next_message(consumer)
        consumer.pause([P0])
        assert consumer.poll(SOON_S) is None
        consumer.resume([P0])
        assert next_message(consumer).offset() == 1


def test_a_pattern_matches_the_beginning_of_names_as_in_librdkafka(group: Group) -> None:
    group.send("orders-eu", b"eu")
    group.send("payments", b"payment")
    with consuming(group) as consumer:
        consumer.subscribe(["^orders"])
        topics = {next_message(consumer).topic() for _ in range(11)}
        assert topics == {"orders", "orders-eu"}
        consumer.subscribe([])
        with pytest.raises(errors.IllegalState):
            consumer.poll(SOON_S)


def test_a_member_is_known_by_its_id(group: Group) -> None:
    with consuming(group) as consumer:
        consumer.subscribe(["orders"])
        next_message(consumer)
        metadata = consumer.consumer_group_metadata()
        assert (metadata.group_id, metadata.member_id) == ("test", consumer.memberid())


def test_settings_have_the_names_of_librdkafka_and_others_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="group_id is missing"):
        confluent.Consumer({"metadata.broker.list": "rota://127.0.0.1:7070"})
    with pytest.raises(errors.InvalidArgument, match="consumed when the poll after its own begins"):
        confluent.Consumer({"enable.auto.offset.store": False})
    with pytest.raises(errors.InvalidArgument, match="names no server"):
        confluent.Producer({"linger.ms": 5})


@pytest.fixture(name="log")
def _log() -> Iterator[tuple[FaultyLog, str]]:
    with faulty_log() as found:
        yield found


Outcome = tuple[errors.RotaError | None, confluent.Message]


def test_outcomes_are_reported_by_polls_and_flushes(log: tuple[FaultyLog, str]) -> None:
    outcomes: list[Outcome] = []
    with confluent.Producer({"bootstrap.servers": log[1], "linger.ms": 1}) as producer:
        assert (len(producer), producer.poll(), producer.flush()) == (0, 0, 0)
        producer.produce(TOPIC, "text", "key", 1, lambda *outcome: outcomes.append(outcome), timestamp=5)
        assert len(producer) == 1
        assert outcomes == []
        assert producer.poll(WAIT_S) == 1
        producer.produce(TOPIC, b"two", partition=1, headers={"name": b"value"}, callback=lambda *_: None)
        producer.produce(TOPIC, None, b"key", partition=1)
        assert producer.flush(WAIT_S) == len(producer) == 0
    ((error, message),) = outcomes
    assert error is None
    assert (message.topic(), message.partition(), message.offset()) == (TOPIC, 1, 0)
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"key", b"text", 5)
    assert log[0].values(1) == [b"text", b"two", None]


def test_a_record_that_is_not_written_has_its_error(log: tuple[FaultyLog, str]) -> None:
    outcomes: list[Outcome] = []
    settings = {"bootstrap.servers": log[1], "on_delivery": lambda *outcome: outcomes.append(outcome)}
    with confluent.Producer(settings) as producer:
        log[0].fail("Produce", codes.TOPIC_AUTHORIZATION_FAILED)
        producer.produce(TOPIC, b"value", partition=0)
        assert producer.flush(WAIT_S) == 0
    ((error, message),) = outcomes
    assert isinstance(error, errors.TopicAuthorizationFailed)
    assert (message.error(), message.offset(), message.value()) == (error, -1, b"value")


@contextmanager
def answering_nothing(log: FaultyLog, producer: confluent.Producer) -> Iterator[None]:
    """A log that holds requests back for the block, although the producer knows the partitions."""
    producer.produce(TOPIC, b"first", partition=0)
    assert producer.flush(WAIT_S) == 0
    log.open.clear()
    yield
    background().loop.call_soon_threadsafe(log.open.set)
    assert producer.flush(WAIT_S) == 0


def test_a_flush_returns_the_number_of_records_that_are_left(log: tuple[FaultyLog, str]) -> None:
    with confluent.Producer({"bootstrap.servers": log[1]}) as producer:
        with answering_nothing(log[0], producer):
            producer.produce(TOPIC, b"second", partition=0)
            assert producer.flush(SOON_S) == 1
        assert log[0].values(0) == [b"first", b"second"]


def test_a_full_buffer_raises_as_that_of_librdkafka(log: tuple[FaultyLog, str]) -> None:
    settings = {"bootstrap.servers": log[1], "buffer.memory": 4000, "batch.size": 1000, "max.block.ms": 500}
    with confluent.Producer(settings) as producer, answering_nothing(log[0], producer):

        def produce_much() -> None:
            for _ in range(100):
                producer.produce(TOPIC, bytes(100), partition=0)

        with pytest.raises(BufferError, match="buffer_memory"):
            produce_much()


@pytest.mark.process
def test_offsets_in_a_transaction_count_with_its_messages_or_not_at_all(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        server = f"rota://{coordinator.address}"
        rota.create_topics(server, {"orders": 1, "copies": 1})
        with confluent.Producer({"bootstrap.servers": server}) as producer:
            producer.produce("orders", "order", partition=0)
        settings = {"bootstrap.servers": server, "group.id": "copiers", "enable.auto.commit": False}
        with (
            confluent.Producer({"bootstrap.servers": server, "transactional.id": "copier"}) as producer,
            confluent.Consumer(settings) as consumer,
        ):
            consumer.subscribe(["orders"])
            message = next_message(consumer)
            ends = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
            producer.init_transactions(WAIT_S)
            for is_kept in (False, True):
                producer.begin_transaction()
                producer.produce("copies", f"{message.value().decode()} {is_kept}")
                producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata())
                if is_kept:
                    producer.commit_transaction(WAIT_S)
                else:
                    producer.abort_transaction(WAIT_S)
                    assert [each.offset for each in consumer.committed([P0])] == [OFFSET_INVALID]
            assert [each.offset for each in consumer.committed([P0])] == [1]
        with rota.LogReader(server, read_committed=True) as reader:
            assert [value for batch in reader.read("copies", 0) for value in batch.values] == [b"order True"]


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Consumer", "Producer", "Message", "TopicPartition"])
def test_every_method_of_confluent_kafka_is_there_or_named_on_the_page(name: str) -> None:
    section = (
        (REPO / "docs/guide/moving.md").read_text().partition("\nNot there are ")[2].partition("\n\n")[0]
    )
    absent = set(re.findall(rf"`{name}\.(\w+)`", section))
    theirs, ours = methods(getattr(confluent_kafka, name)), methods(getattr(confluent, name))
    assert theirs - ours == absent
