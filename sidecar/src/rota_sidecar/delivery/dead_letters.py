"""
Records as they go to the dead-letter topic: as they are, with headers that tell where each came from and why it goes.

The delivery's shell makes them and hands them to the engine's `Letters`.
"""

from collections.abc import Callable, Sequence

from typing_extensions import override

from rota_sidecar.core.delivery.actions import WriteLetter
from rota_sidecar.engines.batch_slicing import BatchSlicer, content_of, part_of
from rota_sidecar.engines.records import Headers, Letter, Letters

PREFIX = "rota-dlq-"


def letter_of(due: WriteLetter, group_id: str, slicer: BatchSlicer) -> Letter:
    """The letter for a record. Raises MalformedPayload."""
    content = content_of(due.piece.batch)
    # What stands for a batch that cannot be read is one record, at the first of its offsets that is not done.
    place = min(due.piece.first - content.base_offset, content.count - 1)
    record = part_of(slicer.columns_of(due.piece.batch), place, place + 1)
    values, keys, times, headers = record
    timestamp_ms = content.base_timestamp_ms if times is None else times[0]
    return Letter(
        topic=due.topic,
        key=None if keys is None else keys[0],
        value=None if values is None else values[0],
        headers=[*_own(() if headers is None else headers[0]), *_origin(due, group_id, timestamp_ms)],
        timestamp_ms=timestamp_ms,
    )


def _own(headers: Headers) -> Headers:
    """Without those of an earlier journey: they stand in that letter, and this one says where it lies."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


def _origin(due: WriteLetter, group_id: str, timestamp_ms: int) -> Headers:
    told = {
        "topic": due.partition.topic,
        "partition": due.partition.number,
        "offset": due.piece.first,
        "timestamp": timestamp_ms,
        "reason": due.reason,
        "deliveries": due.deliveries,
        "group": group_id,
    }
    return [(PREFIX + name, str(value).encode()) for name, value in told.items()]


class LazyDeadLetterWriter(Letters):
    """Nothing is loaded or connected before the first letter."""

    def __init__(self, connect: Callable[[], Letters]) -> None:
        self._connect = connect
        self._letters: Letters | None = None

    @override
    async def write(self, letters: Sequence[Letter], within_s: float) -> None:
        if self._letters is None:
            self._letters = self._connect()
        await self._letters.write(letters, within_s)

    @override
    async def close(self) -> None:
        if self._letters is not None:
            await self._letters.close()
