"""
Dead letters: unchanged records with headers that name their origin and the reason.

`EffectRunner` calls `dead_letter_of` for each record and passes the result to the backend's `DeadLetterWriter`.
"""

from collections.abc import Callable, Sequence

from typing_extensions import override

from rota_sidecar.core.delivery.actions import WriteDeadLetter
from rota_sidecar.engines.batch_slicing import BatchSlicer, content_of, part_of
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter, Headers

PREFIX = "rota-dlq-"


def dead_letter_of(due: WriteDeadLetter, group_id: str, slicer: BatchSlicer) -> DeadLetter:
    """Return the dead letter of a record. Raises MalformedPayload."""
    content = content_of(due.batch_slice.batch)
    # An unreadable batch is represented by one record, at the first of its offsets that is not done.
    index = min(due.batch_slice.first - content.base_offset, content.count - 1)
    record = part_of(slicer.columns_of(due.batch_slice.batch), index, index + 1)
    values, keys, times, headers = record
    timestamp_ms = content.base_timestamp_ms if times is None else times[0]
    return DeadLetter(
        topic=due.topic,
        key=None if keys is None else keys[0],
        value=None if values is None else values[0],
        headers=[*_own(() if headers is None else headers[0]), *_origin(due, group_id, timestamp_ms)],
        timestamp_ms=timestamp_ms,
    )


def _own(headers: Headers) -> Headers:
    """Return the record's headers without those of an earlier dead letter."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


def _origin(due: WriteDeadLetter, group_id: str, timestamp_ms: int) -> Headers:
    origin = {
        "topic": due.partition.topic,
        "partition": due.partition.number,
        "offset": due.batch_slice.first,
        "timestamp": timestamp_ms,
        "reason": due.reason,
        "deliveries": due.deliveries,
        "group": group_id,
    }
    return [(PREFIX + name, str(value).encode()) for name, value in origin.items()]


class LazyDeadLetterWriter(DeadLetterWriter):
    """Writer that connects the backend's writer at the first dead letter. Invariant: `connect` is called once at most."""

    def __init__(self, connect: Callable[[], DeadLetterWriter]) -> None:
        self._connect = connect
        self._dead_letters: DeadLetterWriter | None = None

    @override
    async def write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        if self._dead_letters is None:
            self._dead_letters = self._connect()
        await self._dead_letters.write(dead_letters, within_s)

    @override
    async def close(self) -> None:
        if self._dead_letters is not None:
            await self._dead_letters.close()
