"""A consumer over a group in memory: the reads and results that Kafka's users rely on."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.consumer.listeners import Partitions, Polled
from rota.consumer.options import Options
from rota.serializers import INTEGER, STRING
from rota.testing import Group
from tests.sdk.consumer.reading import P0, P1, SOON_MS, WAIT_MS, Listener, fill, offsets, read


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
    assert listener.calls[-1] == ("revoked", (P0, P1))
    assert consumer.assignment() == set()
    assert consumer.subscription() == set()
    assert group.committed[P0] == 3
    fill(group, 3)
    with pytest.raises(errors.IllegalState, match="not subscribed and has no partitions assigned"):
        consumer.poll(timeout_ms=SOON_MS)


def test_subscribing_to_an_empty_list_unsubscribes(group: Group) -> None:
    fill(group, 3)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe(["orders"], listener=listener)
    read(consumer, 3)
    consumer.subscribe([])
    assert (consumer.subscription(), consumer.assignment()) == (set(), set())
    assert listener.calls[-1] == ("revoked", (P0, P1))
    assert group.committed[P0] == 3
    consumer.assign([P1])
    consumer.subscribe(iter(()))
    assert consumer.assignment() == set()


@pytest.mark.parametrize("topics", ["", [""], ["orders", ""]])
def test_an_empty_name_is_no_topic(group: Group, topics: str | list[str]) -> None:
    with pytest.raises(errors.InvalidArgument, match="'' is not a valid topic name"):
        group.consumer().subscribe(topics)


def test_a_consumer_with_a_sidecar_of_its_own_polls_only_what_it_has_subscribed_to() -> None:
    given: dict[str, Any] = {"group_id": "billing", "bootstrap_servers": "rota://127.0.0.1:1"}
    with rota.Consumer(**given) as consumer:
        for poll in (consumer.poll, consumer.poll_batches, lambda: next(consumer)):
            with pytest.raises(errors.IllegalState, match=r"call subscribe\(\) or assign\(\)"):
                poll()
    assert Options(**given).sidecar_may_subscribe is False
    assert Options(**given, sidecar_flags=["--topics=orders"]).sidecar_may_subscribe
    assert Options(sidecar="unix:/run/rota.sock").sidecar_may_subscribe


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
    with pytest.raises(errors.DeserializationFailed, match=r"orders\[0\] at offset 1: .*seek to the next"):
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
        self.client_ids: list[object] = []
        # Number of commits before each close.
        self.closed: list[int] = []

    @override
    def configure(self, settings: Mapping[str, object]) -> None:
        self.client_ids.append(settings["client_id"])

    @override
    def close(self) -> None:
        self.closed.append(len(self.committed))

    @override
    def on_consume(self, records: Polled) -> Polled:
        return {
            partition: [each for each in some if each.offset % 2 == 0]  # the others stay away
            for partition, some in records.items()
        }

    @override
    def on_commit(self, offsets: Mapping[rota.TopicPartition, rota.OffsetAndMetadata]) -> None:
        self.committed.append(offsets)


def test_interceptors_see_what_is_returned_and_what_is_committed(group: Group) -> None:
    fill(group, 4)
    watcher = Watcher()
    consumer = group.consumer("orders", interceptors=[watcher], enable_auto_commit=False)
    assert offsets(read(consumer, 2)) == [0, 2]
    consumer.commit({P0: 4})
    assert watcher.committed == [{P0: rota.OffsetAndMetadata(4)}]


def test_interceptors_see_automatic_commits_and_those_of_the_close(group: Group) -> None:
    fill(group, 6)
    watcher = Watcher()
    consumer = group.consumer("orders", interceptors=[watcher], max_poll_records=2)
    seen: list[int] = []
    while not watcher.committed:
        seen += [each.offset for records in consumer.poll(timeout_ms=WAIT_MS).values() for each in records]
        group.send("orders", b"more", partition=0)
    (first, *_) = watcher.committed
    assert first[P0].offset <= max(seen) + 1
    consumer.close()
    assert watcher.committed[-1] == {P0: rota.OffsetAndMetadata(group.committed[P0])}
    positions = [each[P0].offset for each in watcher.committed]
    assert positions == sorted(positions)


def test_interceptors_are_configured_and_closed_after_the_last_commit(group: Group) -> None:
    fill(group, 2)
    watcher = Watcher()
    consumer = group.consumer("orders", interceptors=[watcher], client_id="billing")
    read(consumer, 1)
    assert (watcher.client_ids, watcher.closed) == (["billing"], [])
    consumer.close()
    consumer.close()
    assert watcher.closed == [len(watcher.committed)]
    assert watcher.committed[-1] == {P0: rota.OffsetAndMetadata(group.committed[P0])}


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no sidecar is configured"),
        ({"sidecar": "x", "bootstrap_servers": "rota://y"}, "sidecar and bootstrap_servers are both set"),
        ({"bootstrap_servers": "rota://y"}, "group_id is missing"),
        ({"sidecar": "x", "session_timeout_ms": 5}, "session_timeout_ms is a setting of the sidecar"),
        ({"sidecar": "x", "max_poll_records": 0}, "max_poll_records is 0; it must be greater than 0"),
        (
            {"sidecar": "x", "max_poll_records": "5"},
            "max_poll_records is '5'; it must be a number greater than 0",
        ),
        (
            {"sidecar": "x", "enable_auto_commit": "false"},
            "enable_auto_commit is 'false'; it must be True or False",
        ),
        (
            {"sidecar": "x", "value_deserializer": "json"},
            "value_deserializer is 'json'; it must be a function",
        ),
        ({"sidecar": "x", "fetch_min_bytes": 1}, "fetch_min_bytes is a setting of the sidecar"),
        ({"sidecar": "x", "fetch_minimum": 1}, "unknown consumer setting 'fetch_minimum'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROTA_SIDECAR", raising=False)
    with pytest.raises(errors.InvalidArgument, match=message):
        rota.Consumer("orders", **settings)
