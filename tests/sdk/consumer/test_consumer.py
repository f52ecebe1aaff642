"""Every method of the consumer, over a group in memory: what Kafka's users rely on."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.consumer.listeners import Partitions, Polled
from rota.serializers import INTEGER, STRING
from rota.testing import Group

P0, P1 = rota.TopicPartition("orders", 0), rota.TopicPartition("orders", 1)
WAIT_MS = 10_000
# Long enough for whatever is on its way in this process.
SOON_MS = 50
Told = list[tuple[str, tuple[rota.TopicPartition, ...]]]


@pytest.fixture
def group() -> Iterator[Group]:
    with Group(partitions=2) as made:
        yield made


def fill(group: Group, count: int = 10, partition: int = 0) -> None:
    for number in range(count):
        group.send("orders", b"%d" % number, partition=partition)


def read(consumer: rota.Consumer, count: int, max_records: int | None = None) -> list[rota.Record[Any, Any]]:
    """So many records, in the order of their coming."""
    found: list[rota.Record[Any, Any]] = []
    while len(found) < count:
        polled = consumer.poll(timeout_ms=WAIT_MS, max_records=max_records)
        assert polled, f"{len(found)} of {count} records came"
        found += [record for records in polled.values() for record in records]
    return found


def offsets(records: Sequence[rota.Record[Any, Any]]) -> list[int]:
    return [record.offset for record in records]


class Listener(rota.RebalanceListener):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: Told = []

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.told.append(("assigned", tuple(sorted(partitions))))

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self.told.append(("revoked", tuple(sorted(partitions))))

    @override
    def on_partitions_lost(self, partitions: Partitions) -> None:
        self.told.append(("lost", tuple(sorted(partitions))))


# Subscribing


def test_a_subscription_gives_partitions_in_a_poll(group: Group) -> None:
    consumer = group.consumer()
    fill(group, 1)
    consumer.subscribe(["orders"])
    assert consumer.subscription() == {"orders"}
    read(consumer, 1)
    assert consumer.assignment() == {P0, P1}


def test_a_pattern_subscribes_to_all_topics_whose_whole_name_matches(group: Group) -> None:
    for topic in ("orders-eu", "orders-us", "old-orders-eu"):
        group.send(topic, b"", partition=0)
    consumer = group.consumer()
    consumer.subscribe(pattern="orders-.*")
    assert {record.topic for record in read(consumer, 2)} == {"orders-eu", "orders-us"}


@pytest.mark.parametrize("wanted", [{}, {"topics": ["a"], "pattern": "b"}])
def test_a_subscription_is_topics_or_a_pattern(group: Group, wanted: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match="either topics or a pattern"):
        group.consumer().subscribe(**wanted)


def test_unsubscribing_commits_revokes_and_stops(group: Group) -> None:
    fill(group, 3)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe("orders", listener=listener)
    read(consumer, 3)
    consumer.unsubscribe()
    assert listener.told[-1] == ("revoked", (P0, P1))
    assert consumer.assignment() == set()
    assert consumer.subscription() == set()
    assert group.committed[P0] == 3
    fill(group, 3)
    assert consumer.poll(timeout_ms=SOON_MS) == {}


def test_a_consumer_can_subscribe_anew(group: Group) -> None:
    fill(group, 2)
    consumer = group.consumer("orders")
    read(consumer, 2)
    consumer.unsubscribe()
    fill(group, 1)
    consumer.subscribe("orders")
    assert offsets(read(consumer, 1)) == [2]


def test_partitions_assigned_by_hand_are_read_with_no_listener(group: Group) -> None:
    fill(group, 3)
    fill(group, 3, partition=1)
    consumer = group.consumer()
    consumer.assign([("orders", 1)])
    assert consumer.assignment() == {P1}
    assert {record.partition for record in read(consumer, 3)} == {1}


def test_assigning_and_subscribing_exclude_each_other(group: Group) -> None:
    fill(group, 1)
    consumer = group.consumer("orders")
    with pytest.raises(errors.IllegalState, match="call unsubscribe"):
        consumer.assign([P0])
    consumer.unsubscribe()
    consumer.assign([P0])
    with pytest.raises(errors.IllegalState, match="call unsubscribe"):
        consumer.subscribe("orders")


# Polling


def test_a_poll_gives_no_more_than_it_may(group: Group) -> None:
    fill(group, 10)
    consumer = group.consumer("orders", max_poll_records=4)
    assert [len(records) for records in consumer.poll(timeout_ms=WAIT_MS).values()] == [4]
    assert len(read(consumer, 1, max_records=1)) == 1


def test_a_poll_without_time_returns_at_once(group: Group) -> None:
    assert group.consumer("orders").poll() == {}


def test_batches_are_columns(group: Group) -> None:
    fill(group, 2)
    consumer = group.consumer("orders")
    values: list[bytes | None] = []
    while len(values) < 2:
        for batch in consumer.poll_batches(timeout_ms=WAIT_MS):
            assert (batch.topic, batch.partition, batch.base_offset) == ("orders", 0, len(values))
            values += batch.values
    assert values == [b"0", b"1"]


def test_records_are_iterated_over_one_by_one(group: Group) -> None:
    fill(group, 5)
    consumer = group.consumer("orders", consumer_timeout_ms=500)
    assert offsets(list(consumer)) == [0, 1, 2, 3, 4]


def test_a_commit_while_iterating_covers_the_present_record_and_no_later_one(group: Group) -> None:
    fill(group, 5)
    consumer = group.consumer("orders", enable_auto_commit=False)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        consumer.commit()
        assert consumer.committed(P0) == record.offset + 1
        if record.offset == 4:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_deserializers_make_keys_and_values(group: Group) -> None:
    group.send("orders", INTEGER.serialize("orders", 5), key=b"k", partition=0)
    group.send("orders", None, key=None, partition=0)
    consumer = group.consumer(
        "orders", key_deserializer=STRING.deserialize, value_deserializer=INTEGER.deserialize
    )
    assert [(each.key, each.value) for each in read(consumer, 2)] == [("k", 5), (None, None)]


def test_a_record_that_cannot_be_read_is_named_and_can_be_passed(group: Group) -> None:
    for value in (b"1", b"x", b"3"):
        group.send("orders", value, partition=0)
    consumer = group.consumer("orders", value_deserializer=lambda topic, data: int(data or b""))
    assert [each.value for each in read(consumer, 1)] == [1]
    with pytest.raises(errors.DeserializationFailed, match=r"orders\[0\] at offset 1: .*seek behind"):
        read(consumer, 1)
    assert consumer.position(P0) == 1
    consumer.seek(P0, 2)
    assert [each.value for each in read(consumer, 1)] == [3]


def test_iteration_stops_at_a_record_that_cannot_be_read_and_stays_there(group: Group) -> None:
    for value in (b"1", b"x", b"3"):
        group.send("orders", value, partition=0)
    consumer = group.consumer("orders", value_deserializer=lambda topic, data: int(data or b""))
    assert next(consumer).value == 1
    for _ in range(2):
        with pytest.raises(errors.DeserializationFailed, match="at offset 1"):
            next(consumer)
    consumer.seek(P0, 2)
    assert next(consumer).value == 3


class Watcher(rota.ConsumerInterceptor):
    """Drops odd offsets, and remembers commits."""

    def __init__(self) -> None:
        self.committed: list[Mapping[rota.TopicPartition, rota.OffsetAndMetadata]] = []

    @override
    def on_consume(self, records: Polled) -> Polled:
        return {
            place: [each for each in some if each.offset % 2 == 0]  # the others stay away
            for place, some in records.items()
        }

    @override
    def on_commit(self, offsets: Mapping[rota.TopicPartition, rota.OffsetAndMetadata]) -> None:
        self.committed.append(offsets)


def test_interceptors_see_what_is_returned_and_what_is_committed(group: Group) -> None:
    fill(group, 4)
    watcher = Watcher()
    consumer = group.consumer("orders", interceptors=[watcher])
    assert offsets(read(consumer, 2)) == [0, 2]
    consumer.commit({P0: 4})
    assert watcher.committed == [{P0: rota.OffsetAndMetadata(4)}]


class Broken(rota.ConsumerInterceptor):
    @override
    def on_consume(self, records: Polled) -> Polled:
        raise ValueError("it is broken")


def test_an_interceptor_that_raises_changes_nothing(group: Group) -> None:
    fill(group, 2)
    consumer = group.consumer("orders", interceptors=[Broken()])
    assert offsets(read(consumer, 2)) == [0, 1]


def test_wakeup_ends_the_poll_that_waits(group: Group) -> None:
    consumer = group.consumer("orders")
    consumer.poll()
    waker = threading.Timer(0.05, consumer.wakeup)
    waker.start()
    with pytest.raises(errors.WokenUp):
        consumer.poll(timeout_ms=WAIT_MS)
    waker.join()
    assert consumer.poll() == {}


def test_another_thread_may_not_use_the_consumer_meanwhile(group: Group) -> None:
    fill(group, 1)
    consumer = group.consumer()
    refused: list[Exception] = []

    class Meddler(rota.RebalanceListener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            def meddle() -> None:
                with pytest.raises(errors.IllegalState, match="another thread") as caught:
                    consumer.poll()
                refused.append(caught.value)

            thread = threading.Thread(target=meddle)
            thread.start()
            thread.join()

    consumer.subscribe("orders", listener=Meddler())
    read(consumer, 1)
    assert len(refused) == 1


# Commits


def test_a_poll_commits_what_earlier_polls_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", max_poll_records=2)
    consumer.poll(timeout_ms=WAIT_MS)
    assert group.committed.get(P0, 0) == 0
    consumer.poll(timeout_ms=WAIT_MS)
    assert group.committed[P0] == 2


def test_nothing_is_committed_by_itself_without_auto_commit(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    consumer.poll(timeout_ms=SOON_MS)
    consumer.close()
    assert group.committed == {}


def test_a_commit_without_offsets_covers_what_was_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False, max_poll_records=3)
    consumer.poll(timeout_ms=WAIT_MS)
    consumer.commit()
    assert group.committed == {P0: 3}


def test_a_commit_keeps_its_text(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 1)
    consumer.commit({P0: rota.OffsetAndMetadata(2, "so far")})
    assert consumer.committed(P0, metadata=True) == rota.OffsetAndMetadata(2, "so far")
    assert consumer.committed(P0) == 2
    assert consumer.committed(P1) is None


def test_a_commit_of_what_others_have_by_now_is_refused(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    group.lose(P0)
    with pytest.raises(errors.IllegalGeneration):
        consumer.commit()
    assert group.committed == {}


def test_async_commits_call_back_in_their_order(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    heard: list[tuple[int, errors.RotaError | None]] = []
    for offset in (1, 2, 3):
        consumer.commit_async(
            {P0: offset}, lambda committed, error: heard.append((committed[P0].offset, error))
        )
    consumer.commit({P0: 4})
    assert heard == [(1, None), (2, None), (3, None)]
    assert group.committed == {P0: 4}


def test_an_async_commit_that_is_refused_tells_its_callback_and_nobody_else(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    group.lose(P0)
    heard: list[errors.RotaError | None] = []
    consumer.commit_async({P0: 4}, lambda committed, error: heard.append(error))
    consumer.close()
    assert [type(error) for error in heard] == [errors.IllegalGeneration]


def test_closing_commits_what_was_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders")
    read(consumer, 4)
    consumer.close()
    assert group.committed[P0] == 4
    with pytest.raises(errors.ConsumerClosed):
        consumer.poll()


def test_closing_without_auto_commit_leaves_the_last_records_to_come_again(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    consumer.close()
    assert offsets(read(group.consumer("orders"), 4)) == [0, 1, 2, 3]


# Positions


def test_the_position_is_the_next_record_that_is_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", max_poll_records=3)
    consumer.poll(timeout_ms=WAIT_MS)
    assert consumer.position(P0) == 3
    assert consumer.position(P1) == 0


def test_a_seek_goes_back_and_forth(group: Group) -> None:
    fill(group, 10)
    consumer = group.consumer("orders")
    read(consumer, 10)
    for offset in (2, 7, 0):
        consumer.seek(P0, offset)
        assert consumer.position(P0) == offset
        assert offsets(read(consumer, 10 - offset)) == list(range(offset, 10))


def test_two_seeks_in_a_row_count_as_the_last_one(group: Group) -> None:
    fill(group, 10)
    consumer = group.consumer("orders")
    read(consumer, 10)
    consumer.seek(P0, 1)
    consumer.seek(P0, 8)
    assert offsets(read(consumer, 2)) == [8, 9]


def test_a_seek_is_for_what_is_assigned(group: Group) -> None:
    with pytest.raises(errors.IllegalState, match=r"orders\[0\] is not assigned"):
        group.consumer("orders").seek(P0, 1)


def test_seeking_to_the_beginning_and_to_the_end(group: Group) -> None:
    fill(group, 5)
    consumer = group.consumer("orders")
    read(consumer, 5)
    consumer.seek_to_beginning(P0)
    assert offsets(read(consumer, 5)) == [0, 1, 2, 3, 4]
    consumer.seek_to_beginning()
    consumer.seek_to_end()
    assert consumer.position(P0) == 5
    fill(group, 1)
    assert offsets(read(consumer, 1)) == [5]


def test_a_commit_after_a_seek_back_names_the_lower_offset(group: Group) -> None:
    fill(group, 5)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 5)
    consumer.commit()
    consumer.seek(P0, 2)
    consumer.commit()
    assert group.committed[P0] == 2


def test_a_paused_partition_stays_assigned_and_silent(group: Group) -> None:
    fill(group, 4)
    fill(group, 4, partition=1)
    consumer = group.consumer("orders", max_poll_records=1)
    read(consumer, 1)
    consumer.pause(P0)
    assert consumer.paused() == {P0}
    assert consumer.assignment() == {P0, P1}
    rest = read(consumer, 3) + [
        record for records in consumer.poll(timeout_ms=SOON_MS).values() for record in records
    ]
    assert {record.partition for record in rest} == {1}


def test_what_waited_of_a_paused_partition_comes_once_after_it_is_resumed(group: Group) -> None:
    fill(group, 6)
    consumer = group.consumer("orders", max_poll_records=2)
    first = read(consumer, 2)
    consumer.pause(P0)
    for _ in range(2):
        assert consumer.poll(timeout_ms=SOON_MS) == {}
    consumer.resume(P0)
    assert consumer.paused() == set()
    assert offsets(first + read(consumer, 4)) == [0, 1, 2, 3, 4, 5]


# Looking things up


def test_partitions_of_a_topic_and_of_none(group: Group) -> None:
    fill(group, 1)
    consumer = group.consumer("orders")
    assert consumer.partitions_for_topic("orders") == {0, 1}
    assert consumer.partitions_for_topic("nothing") is None


def test_offsets_by_time_and_at_both_ends(group: Group) -> None:
    for time in (1_000, 2_000, 3_000):
        group.send("orders", b"", partition=0, timestamp_ms=time)
    consumer = group.consumer("orders")
    assert consumer.offsets_for_times({P0: 1_500, P1: 1_500}) == {
        P0: rota.OffsetAndTimestamp(1, 2_000),
        P1: None,
    }
    assert consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
    assert consumer.end_offsets([P0, P1]) == {P0: 3, P1: 0}


def test_the_group_metadata_is_that_of_the_present_generation(group: Group) -> None:
    fill(group, 2)
    consumer = group.consumer("orders")
    read(consumer, 2)
    before = consumer.group_metadata()
    assert (before.group_id, before.generation_id, before.incarnation) == ("test", 1, 1)
    group.take_away(P1)
    consumer.poll(timeout_ms=SOON_MS)
    group.give_back(P1)
    consumer.poll(timeout_ms=SOON_MS)
    assert consumer.group_metadata().generation_id > before.generation_id


def test_who_assigns_by_hand_has_no_generation(group: Group) -> None:
    fill(group, 1)
    consumer = group.consumer()
    consumer.assign([P0])
    read(consumer, 1)
    assert consumer.group_metadata().generation_id == -1


# Rebalances


def test_all_that_is_revoked_is_told_before_anything_that_is_assigned(group: Group) -> None:
    fill(group, 2)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe("orders", listener=listener)
    read(consumer, 2)
    group.take_away(P0)
    group.give_back(P0)
    consumer.poll(timeout_ms=SOON_MS)
    consumer.poll(timeout_ms=SOON_MS)
    assert listener.told == [("assigned", (P0, P1)), ("revoked", (P0,)), ("assigned", (P0,))]


def test_a_listener_commits_what_is_revoked(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer(enable_auto_commit=False)

    class Committing(rota.RebalanceListener):
        @override
        def on_partitions_revoked(self, partitions: Partitions) -> None:
            assert set(partitions) <= consumer.assignment()
            consumer.commit()

    consumer.subscribe("orders", listener=Committing())
    read(consumer, 4)
    group.take_away(P0)
    consumer.poll(timeout_ms=SOON_MS)
    assert group.committed[P0] == 4
    assert consumer.assignment() == {P1}


def test_auto_commit_covers_what_is_revoked_and_nothing_comes_twice(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", max_poll_records=3)
    assert offsets(read(consumer, 3)) == [0, 1, 2]
    group.take_away(P0)
    assert consumer.poll(timeout_ms=SOON_MS) == {}
    assert group.committed[P0] == 3
    group.give_back(P0)
    assert offsets(read(consumer, 1)) == [3]


def test_a_group_is_rewound_in_the_listener(group: Group) -> None:
    fill(group, 4)
    fill(group, 4, partition=1)
    first = group.consumer("orders")
    read(first, 8)
    first.close()
    consumer = group.consumer()

    class Rewind(rota.RebalanceListener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            assert [consumer.position(each) for each in partitions] == [4, 4]
            consumer.seek_to_beginning(*partitions)

    consumer.subscribe("orders", listener=Rewind())
    assert sorted(offsets(read(consumer, 8))) == sorted([*range(4), *range(4)])


def test_lost_partitions_are_told_apart(group: Group) -> None:
    fill(group, 2)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe("orders", listener=listener)
    read(consumer, 2)
    group.lose(P0)
    consumer.poll(timeout_ms=SOON_MS)
    assert listener.told[-1] == ("lost", (P0,))


def test_who_does_not_poll_before_the_deadline_has_lost_its_partitions(group: Group) -> None:
    fill(group, 2)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe("orders", listener=listener)
    read(consumer, 2)
    group.take_away(P0)
    group.expire()
    consumer.poll(timeout_ms=SOON_MS)
    assert listener.told[-1] == ("lost", (P0,))


def test_a_listener_that_fails_is_called_again_and_nothing_is_returned_before(group: Group) -> None:
    fill(group, 2)
    calls: list[int] = []

    class Failing(rota.RebalanceListener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            calls.append(len(partitions))
            if len(calls) == 1:
                raise ValueError("not yet")

    consumer = group.consumer()
    consumer.subscribe("orders", listener=Failing())
    with pytest.raises(ValueError, match="not yet"):
        consumer.poll(timeout_ms=WAIT_MS)
    assert offsets(read(consumer, 2)) == [0, 1]
    assert calls == [2, 2]


# Settings


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "there is no sidecar"),
        ({"sidecar": "x", "bootstrap_servers": "rota://y"}, "both a sidecar and bootstrap_servers"),
        ({"bootstrap_servers": "rota://y"}, "group_id is missing"),
        ({"sidecar": "x", "session_timeout_ms": 5}, "session_timeout_ms is a setting of the sidecar"),
        ({"sidecar": "x", "max_poll_records": 0}, "max_poll_records is 0"),
        ({"sidecar": "x", "fetch_min_bytes": 1}, "no setting 'fetch_min_bytes'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROTA_SIDECAR", raising=False)
    with pytest.raises(errors.InvalidArgument, match=sentence):
        rota.Consumer("orders", **settings)
