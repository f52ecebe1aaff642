"""
Converts Kafka's messages into batches, column by column: a Python statement for each record would cost more than all the
rest. Called in the consumer's thread of `consumption.py`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import cast

from confluent_kafka import Message

from rota_proto.log.columns import Columns, Headers
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.packing import packed


def by_partition(messages: Sequence[Message]) -> dict[Partition, Sequence[Message]]:
    """Group messages by partition; the order within a partition stays."""
    topics = list(map(Message.topic, messages))
    numbers = list(map(Message.partition, messages))
    if numbers.count(numbers[0]) == topics.count(topics[0]) == len(messages):
        # The common case: all messages are of one partition.
        return {Partition(str(topics[0]), int(numbers[0] or 0)): messages}
    found: dict[Partition, list[Message]] = {}
    for key, run in groupby(zip(topics, numbers, messages, strict=True), itemgetter(0, 1)):
        found.setdefault(Partition(*key), []).extend(map(itemgetter(2), run))
    return dict(found)


def batches_of(messages: Sequence[Message], *, with_keys: bool) -> list[Batch]:
    """Convert the messages of one partition into batches, in order of offsets."""
    return [
        batch for first, run in _consecutive(messages) for batch in _packed(first, run, with_keys=with_keys)
    ]


def _consecutive(messages: Sequence[Message]) -> Iterator[tuple[int, Sequence[Message]]]:
    """Yield runs of consecutive offsets: the first offset and the messages."""
    offsets = [offset or 0 for offset in map(Message.offset, messages)]
    start = 0
    while start < len(offsets):
        end = _end_of_run(offsets, start)
        yield offsets[start], messages[start:end] if start or end < len(messages) else messages
        start = end


def _end_of_run(offsets: Sequence[int], start: int) -> int:
    """Return the index after the run that begins at `start`, by binary search: offsets are strictly increasing."""
    first = offsets[start] - start
    if offsets[-1] - (len(offsets) - 1) == first:
        return len(offsets)
    low, high = start, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offsets[middle] - middle == first else (low, middle)
    return high


def _packed(first: int, messages: Sequence[Message], *, with_keys: bool) -> list[Batch]:
    # The declared type is wider: a consumed message has a list of pairs, or None.
    headers = cast("list[Headers | None]", list(map(Message.headers, messages)))
    columns = Columns(
        list(map(Message.value, messages)),
        list(map(Message.key, messages)),
        [time for _, time in map(Message.timestamp, messages)],
        [each or () for each in headers] if any(headers) else None,
    )
    return packed(first, len(messages), columns, with_keys=with_keys)
