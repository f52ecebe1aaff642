"""A store beside a consumer: the fence first, then the position, and the consumer goes there."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import rota
from rota import errors
from rota.stores import SqlStore, StoreError, StoreFenced
from rota.testing import Group

P0, P1 = rota.TopicPartition("orders", 0), rota.TopicPartition("orders", 1)
WAIT_MS = 60_000


def work(store: SqlStore, consumer: rota.Consumer, listener: object, count: int) -> list[bytes | None]:
    """Results and offsets in one transaction for each poll."""
    done: list[bytes | None] = []
    while len(done) < count:
        for partition, records in consumer.poll(timeout_ms=WAIT_MS, max_records=count - len(done)).items():
            with store.transaction(listener.tenure) as tx:  # type: ignore[attr-defined]
                done += [record.value for record in records]
                tx.save({partition: records[-1].offset + 1})
    return done


def test_a_consumer_goes_on_where_the_store_is_whatever_the_group_has(tmp_path: Path) -> None:
    with Group(partitions=1) as group, closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        for number in range(10):
            group.send("orders", b"%d" % number)
        store = SqlStore(connection)
        store.create_tables()
        for expected in ([b"0", b"1", b"2", b"3"], [b"4", b"5", b"6"]):
            consumer = group.consumer(enable_auto_commit=False)
            listener = store.listener(consumer)
            with pytest.raises(StoreError, match="poll first"):
                _ = listener.tenure
            consumer.subscribe("orders", listener=listener)
            assert work(store, consumer, listener, len(expected)) == expected
            consumer.close()
        assert store.stored_offsets("test") == {P0: 7}
        assert group.committed == {}


def test_an_owner_who_comes_late_is_stopped_by_the_fence(tmp_path: Path) -> None:
    with Group(partitions=1) as group, closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        group.send("orders", b"0")
        store = SqlStore(connection)
        store.create_tables()
        consumer = group.consumer(enable_auto_commit=False)
        listener = store.listener(consumer)
        consumer.subscribe("orders", listener=listener)
        work(store, consumer, listener, 1)
        late = listener.tenure
        group.lose(P0)
        group.give_back(P0)
        while (
            consumer.group_metadata().generation_id == late.group.generation_id or not consumer.assignment()
        ):
            consumer.poll(timeout_ms=100)
        consumer.poll(timeout_ms=100)
        late.positions[P0] = 1
        with pytest.raises(StoreFenced), store.transaction(late) as tx:
            tx.save({P0: 1})


def test_the_loop_of_the_guide_says_nothing_wrong_when_a_rebalance_takes_a_partition_before_its_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[object] = []
    with Group(partitions=2) as group, closing(sqlite3.connect(tmp_path / "results.db")) as connection:
        for partition in (0, 1):
            group.send("orders", b"0", partition=partition)
        store = SqlStore(connection)
        store.create_tables()
        consumer = group.consumer(enable_auto_commit=False)
        listener = store.listener(consumer)
        consumer.subscribe("orders", listener=listener)
        work(store, consumer, listener, 2)
        group.take_away(P1)
        group.expire()
        consumer.commit_async(callback=lambda _, error: refused.append(error))
        while not refused:
            consumer.poll(timeout_ms=10)
        group.send("orders", b"1", partition=0)
        work(store, consumer, listener, 1)
        assert store.stored_offsets("test") == {P0: 2, P1: 1}
    assert [type(error) for error in refused] == [errors.IllegalGeneration]
    assert "refuses a verdict" not in caplog.text
