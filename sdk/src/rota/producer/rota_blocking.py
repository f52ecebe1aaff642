"""
A `RotaEngine` for threads: sends append to slabs and to the accumulator in the caller's thread, all other calls run on the loop.
"""

import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from typing_extensions import override

from rota.clocks import Clocks
from rota.connection import background
from rota.metadata import GroupMetadata
from rota.offsets import Offsets
from rota.producer.accumulator import BufferFull, UnknownTopic
from rota.producer.batches import Batch, Outcome
from rota.producer.bulk import Column, chunks
from rota.producer.engine import Engine
from rota.producer.futures import SentMany
from rota.producer.options import Options, buffer_exhausted
from rota.producer.pipeline import PreparedRecord
from rota.producer.rota_engine import RotaEngine
from rota.producer.slab_writer import SlabWriter
from rota.records import Headers

Result = TypeVar("Result")
# The loop enforces `max_block_ms`; the thread waits a little longer, to raise the loop's own error.
GRACE_S = 5.0


class BlockingRotaEngine(SlabWriter, Engine):
    """Engine of one producer; all share the background event loop."""

    def __init__(
        self, address: str, options: Options, clocks: Clocks, on_batch: Callable[[Outcome], None] | None
    ) -> None:
        self._background = background()
        self._max_block_s = options.max_block_ms / 1000
        self._clock = clocks.monotonic_s
        self._engine = self._background.run(_made(address, options, clocks))
        self._accumulator = self._engine.accumulator
        self._accumulator.on_batch = on_batch
        SlabWriter.__init__(self, self._accumulator, clocks.wall_ms)

    @override
    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> tuple[Batch, int]:
        try:
            return self._accumulator.append(topic, value, key, partition, timestamp_ms, headers)
        except (BufferFull, UnknownTopic):
            record = PreparedRecord(topic, value, key, partition, timestamp_ms, headers)
            return self._append_when_possible(topic, lambda: self._accumulator.append(*record))

    @override
    def send_many(self, topic: str, values: Column, keys: Column | None) -> SentMany:
        parts: list[tuple[Outcome, int, Sequence[int]]] = []
        partitions = 0 if keys is None else self.partitions_for(topic)
        for chunk in chunks(values, keys, partitions):
            left = chunk
            while left.positions:
                put = partial(self._accumulator.append_many, topic, left.partition, left.values, left.keys)
                for batch, first, count in self._append_when_possible(topic, put):
                    parts.append((batch, first, left.positions[:count]))
                    left = left.after(count)
        return SentMany(len(values), parts)

    def _append_when_possible(self, topic: str, put: Callable[[], Result]) -> Result:
        """Append once the topic's partitions are known and there is room."""
        deadline_s = self._clock() + self._max_block_s
        while True:
            try:
                return put()
            except UnknownTopic:
                self._run(self._engine.load_partitions(topic))
            except BufferFull:
                self._wait_for_room(deadline_s)

    def _wait_for_room(self, deadline_s: float) -> None:
        self._background.check_may_block()
        room = threading.Event()
        self._accumulator.on_room(room.set)
        if not room.wait(max(deadline_s - self._clock(), 0)):
            raise buffer_exhausted(self._max_block_s)

    @override
    def partitions_for(self, topic: str) -> int:
        known = self._accumulator.partitions.get(topic)
        return known if known is not None else self._run(self._engine.load_partitions(topic))

    @override
    def flush(self, timeout_s: float | None) -> None:
        self._background.run(self._engine.flush(timeout_s))

    @override
    def close(self, timeout_s: float | None) -> None:
        self._background.run(self._engine.close(timeout_s))

    @override
    def init_transactions(self) -> None:
        self._run(self._engine.init_transactions())

    @override
    def begin(self) -> None:
        self._run(_called(self._engine.begin))

    @override
    def commit(self) -> None:
        # Time limits of a flush and of a close.
        self._run(self._engine.commit(), self._max_block_s)

    @override
    def abort(self) -> None:
        self._run(self._engine.abort(), self._max_block_s)

    @override
    def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        self._run(self._engine.send_offsets(offsets, group))

    def _run(self, work: Coroutine[Any, Any, Result], more_s: float = 0) -> Result:
        return self._background.run(work, self._max_block_s + more_s + GRACE_S)


async def _made(address: str, options: Options, clocks: Clocks) -> RotaEngine:
    return RotaEngine(address, options, clocks)


async def _called(function: Callable[[], None]) -> None:
    function()
