"""Kafka's messages become batches: none lost, none moved, a gap between two of them, none too large."""

from itertools import pairwise

import pytest
from confluent_kafka import Message

from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.batching import batches_of, by_partition
from rota_sidecar.engines.kafka.packing import BATCH_BYTES_MAX
from tests.sidecar.engines.readers import rows_of


def message(offset: int, value: bytes | None = b"v", *, topic: str = "t", partition: int = 0) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=b"k%d" % offset if offset % 2 else None,
        value=value,
        headers=[("h", b"%d" % offset)] if offset % 3 else None,
        timestamp=(1, 1_000 + offset),
    )


@pytest.mark.parametrize(
    "offsets",
    [
        [5],
        [5, 6, 7],
        [5, 7],
        [5, 6, 8],
        [5, 7, 8, 9, 20, 21, 30],
        [0, 2, 4, 6],
        [*range(100), *range(101, 300), 400],
    ],
)
def test_a_gap_begins_another_batch(offsets: list[int]) -> None:
    batches = batches_of([message(offset) for offset in offsets], with_keys=True)
    assert [offset for batch in batches for offset in range(batch.first, batch.end)] == offsets
    assert all(before.end < after.first for before, after in pairwise(batches))
    for batch in batches:
        for row in rows_of(batch):
            assert row == (
                row.offset,
                b"v",
                b"k%d" % row.offset if row.offset % 2 else None,
                1_000 + row.offset,
                (("h", b"%d" % row.offset),) if row.offset % 3 else (),
            )


def test_keys_come_with_a_batch_only_where_they_are_wanted() -> None:
    (batch,) = batches_of([message(1)], with_keys=False)
    assert batch.keys is None


def test_nulls_stay_nulls() -> None:
    (batch,) = batches_of([message(2, None), message(3, b"")], with_keys=True)
    assert [(row.value, row.key) for row in rows_of(batch)] == [(None, None), (b"", b"k3")]


def test_what_is_too_large_for_one_batch_becomes_several() -> None:
    sizes = [100, BATCH_BYTES_MAX * 3, 100, *([BATCH_BYTES_MAX // 4] * 9)]
    messages = [message(offset, bytes(size)) for offset, size in enumerate(sizes)]
    batches = batches_of(messages, with_keys=True)
    assert [len(row.value or b"") for batch in batches for row in rows_of(batch)] == sizes
    assert all(batch.size <= BATCH_BYTES_MAX or batch.count == 1 for batch in batches)


def test_messages_are_sorted_by_partition_and_keep_their_order() -> None:
    partitions = [("t", 0), ("t", 1), ("t", 0), ("u", 0), ("u", 0), ("t", 0)]
    messages = [
        message(number, topic=topic, partition=partition)
        for number, (topic, partition) in enumerate(partitions)
    ]
    found = by_partition(messages)
    assert {each: [one.offset() for one in those] for each, those in found.items()} == {
        Partition("t", 0): [0, 2, 5],
        Partition("t", 1): [1],
        Partition("u", 0): [3, 4],
    }
    assert list(by_partition(messages[3:5])) == [Partition("u", 0)]
