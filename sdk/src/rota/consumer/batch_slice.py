"""Slices of record batches: consecutive records of a partition in columns, which are unpacked on first use."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

from rota.records import Headers, Record, TopicPartition

Deserializer = Callable[[str, bytes | None], Any]
"""Function of topic and bytes; returns the object."""
GivenDeserializer = Deserializer | Callable[[Any], Any]
"""The same, or a function of the bytes alone; `rota.serializers.with_topic` makes a `Deserializer` of it."""


class Columns(Protocol):
    """Columns of a whole batch, as `rota.Records` reads it."""

    @property
    def values(self) -> Sequence[bytes | None]: ...
    @property
    def keys(self) -> Sequence[bytes | None]: ...
    @property
    def timestamps_ms(self) -> Sequence[int]: ...
    @property
    def headers(self) -> Sequence[Headers]: ...


class BatchSlice:
    """
    Consecutive records of one partition; columns when asked for, records when iterated over.

    >>> for batch in consumer.poll_batches(timeout_ms=500):     # doctest: +SKIP
    ...     store(batch.topic, batch.partition, batch.base_offset, batch.values)
    """

    __slots__ = (
        "_record_size",
        "_whole",
        "_whole_offset",
        "base_offset",
        "deliveries",
        "delivery_epoch",
        "next_offset",
        "topic_partition",
        "turn",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        delivery_epoch: int,
        whole: Columns,
        offsets: range,
        size: float = 0,
    ) -> None:
        """Take all records of `whole`, which have these offsets. Verdicts on them name `delivery_epoch`."""
        self.topic_partition = topic_partition
        self.delivery_epoch = delivery_epoch
        # RETRY verdicts in this delivery epoch before the sidecar dispatched these records.
        self.turn = 0
        # Number of deliveries of these records, this one included.
        self.deliveries = 1
        self._record_size = size / max(len(offsets), 1)
        self.base_offset = offsets.start
        self.next_offset = offsets.stop
        self._whole = whole
        self._whole_offset = offsets.start

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition

    def __len__(self) -> int:
        return self.next_offset - self.base_offset

    @property
    def size(self) -> float:
        """Approximate size in bytes."""
        return self._record_size * len(self)

    def between(self, first: int, end: int) -> "BatchSlice":
        """Return the records of the offsets [first, end); unpacked columns are shared."""
        part = BatchSlice(self.topic_partition, self.delivery_epoch, self._whole, range(first, end))
        part.turn, part.deliveries = self.turn, self.deliveries
        part._record_size, part._whole_offset = self._record_size, self._whole_offset
        return part

    @property
    def values(self) -> Sequence[bytes | None]:
        """All values."""
        return self._cut(self._whole.values)

    @property
    def keys(self) -> Sequence[bytes | None]:
        """All keys."""
        return self._cut(self._whole.keys)

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """All timestamps."""
        return self._cut(self._whole.timestamps_ms)

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of each record."""
        return self._cut(self._whole.headers)

    def _cut(self, column: Sequence[Any]) -> Sequence[Any]:
        first, end = self.base_offset - self._whole_offset, self.next_offset - self._whole_offset
        return column if first == 0 and end == len(column) else column[first:end]

    def __iter__(self) -> Iterator[Record]:
        return self.records(None, None)

    def records(
        self, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> Iterator[Record[Any, Any]]:
        """Iterate over records, deserialized one by one; raises what a deserializer raises."""
        topic = self.topic
        return map(
            Record,
            repeat(topic),
            repeat(self.partition),
            range(self.base_offset, self.next_offset),
            self.timestamps_ms,
            _each(key_deserializer, topic, self.keys),
            _each(value_deserializer, topic, self.values),
            self.headers,
            repeat(self.deliveries),
        )


def _each(deserializer: Deserializer | None, topic: str, column: Sequence[bytes | None]) -> Any:  # noqa: ANN401  whatever it makes
    return column if deserializer is None else map(deserializer, repeat(topic), column)
