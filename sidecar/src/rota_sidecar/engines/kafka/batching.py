"""
Converts Kafka's messages into batches, column by column: a Python statement for each record would cost more than all the
rest. Called in the consumer's thread of `consumption.py`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import cast

from confluent_kafka import Message

from rota_proto.log.columns import CODEC, Columns, Headers, pack
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition

# Several batches of this size fit into one message to the application.
BATCH_BYTES_MAX = 512 << 10


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
    count = len(messages)
    keys = list(map(Message.key, messages))
    # The declared type is wider: a consumed message has a list of pairs, or None.
    headers = cast("list[Headers | None]", list(map(Message.headers, messages)))
    times = [time for _, time in map(Message.timestamp, messages)]
    columns = Columns(
        list(map(Message.value, messages)),
        keys,
        times,
        [each or () for each in headers] if any(headers) else None,
    )
    payload = pack(columns, count, times[0])
    if len(payload) > BATCH_BYTES_MAX and count > 1:
        half = count // 2
        return [
            *_packed(first, messages[:half], with_keys=with_keys),
            *_packed(first + half, messages[half:], with_keys=with_keys),
        ]
    content = log_pb2.RecordBatch(
        base_offset=first,
        base_timestamp_ms=times[0],
        max_timestamp_ms=max(times),
        count=count,
        codec=CODEC,
        payload=payload,
        producer_id=-1,
    )
    return [Batch(first, count, len(payload), content, keys if with_keys else None)]
