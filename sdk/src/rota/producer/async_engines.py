"""Engines of `AsyncProducer`: a Rota log on the application's own loop, or Kafka's client in threads."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from typing_extensions import override

from rota.addresses import is_rota
from rota.clocks import Clocks
from rota.metadata import GroupMetadata
from rota.offsets import Offsets
from rota.producer.accumulator import BufferFull, UnknownTopic
from rota.producer.batches import Outcome
from rota.producer.bulk import Column, chunks
from rota.producer.engine import Engine
from rota.producer.futures import SentMany
from rota.producer.options import Options, buffer_exhausted
from rota.producer.pipeline import PreparedRecord, SendPipeline
from rota.producer.rota_engine import RotaEngine

Result = TypeVar("Result")


class AsyncEngine(Protocol):
    """`Engine` for one event loop."""

    async def send(self, record: PreparedRecord) -> tuple[Outcome, int]:
        """Queue a record; return its batch and its index there."""
        ...

    async def send_many(self, topic: str, values: Column, keys: Column | None) -> SentMany:
        """Queue many records of one topic."""
        ...

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        ...

    async def flush(self, timeout_s: float | None) -> None:
        """Wait until all records have an outcome."""
        ...

    async def close(self, timeout_s: float | None) -> None:
        """Flush and close."""
        ...

    async def init_transactions(self) -> None:
        """Register the transactional id, fencing earlier producers of it."""
        ...

    async def begin(self) -> None:
        """Begin a transaction."""
        ...

    async def commit(self) -> None:
        """Commit the transaction."""
        ...

    async def abort(self) -> None:
        """Abort the transaction."""
        ...

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Add offsets to the transaction."""
        ...


class AsyncRotaEngine(AsyncEngine):
    """Engine on a Rota log; created on the event loop that it is used on."""

    def __init__(self, address: str, options: Options, clocks: Clocks, pipeline: SendPipeline) -> None:
        self._engine = RotaEngine(address, options, clocks)
        self._accumulator = self._engine.accumulator
        self._accumulator.on_batch = pipeline.batch_callback()
        self._clock = clocks.monotonic_s
        self._max_block_s = options.max_block_ms / 1000

    @override
    async def send(self, record: PreparedRecord) -> tuple[Outcome, int]:
        batch, index = await self._append_when_possible(
            record.topic, lambda: self._accumulator.append(*record)
        )
        if index == 0:
            # A new batch, and perhaps a full one before it: yield to the sender, also when the application
            # sends in a loop.
            await asyncio.sleep(0)
        return batch, index

    @override
    async def send_many(self, topic: str, values: Column, keys: Column | None) -> SentMany:
        parts: list[tuple[Outcome, int, Sequence[int]]] = []
        partitions = 0 if keys is None else await self.partitions_for(topic)
        for chunk in chunks(values, keys, partitions):
            left = chunk
            while left.positions:
                for batch, first, count in await self._some(topic, left.partition, left.values, left.keys):
                    parts.append((batch, first, left.positions[:count]))
                    left = left.after(count)
                await asyncio.sleep(0)
        return SentMany(len(values), parts)

    async def _some(
        self, topic: str, partition: int | None, values: Column, keys: Column | None
    ) -> Sequence[tuple[Outcome, int, int]]:
        return await self._append_when_possible(
            topic, lambda: self._accumulator.append_many(topic, partition, values, keys)
        )

    async def _append_when_possible(self, topic: str, put: Callable[[], Result]) -> Result:
        deadline_s = self._clock() + self._max_block_s
        while True:
            try:
                return put()
            except UnknownTopic:
                await self._engine.load_partitions(topic)
            except BufferFull:
                await self._wait_for_room(deadline_s)

    async def _wait_for_room(self, deadline_s: float) -> None:
        room = asyncio.Event()
        self._accumulator.on_room(room.set)
        try:
            async with asyncio.timeout(max(deadline_s - self._clock(), 0)):
                await room.wait()
        except TimeoutError:
            raise buffer_exhausted(self._max_block_s) from None

    @override
    async def partitions_for(self, topic: str) -> int:
        known = self._accumulator.partitions.get(topic)
        return known if known is not None else await self._engine.load_partitions(topic)

    @override
    async def flush(self, timeout_s: float | None) -> None:
        await self._engine.flush(timeout_s)

    @override
    async def close(self, timeout_s: float | None) -> None:
        await self._engine.close(timeout_s)

    @override
    async def init_transactions(self) -> None:
        await self._engine.init_transactions()

    @override
    async def begin(self) -> None:
        self._engine.begin()

    @override
    async def commit(self) -> None:
        await self._engine.commit()

    @override
    async def abort(self) -> None:
        await self._engine.abort()

    @override
    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        await self._engine.send_offsets(offsets, group)


class ThreadedEngine(AsyncEngine):
    """An engine with blocking calls; each runs in a thread, one after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._one = asyncio.Lock()

    @override
    async def send(self, record: PreparedRecord) -> tuple[Outcome, int]:
        return await self._do(lambda: self._engine.append(*record))

    @override
    async def send_many(self, topic: str, values: Column, keys: Column | None) -> SentMany:
        return await self._do(lambda: self._engine.send_many(topic, values, keys))

    @override
    async def partitions_for(self, topic: str) -> int:
        return await self._do(lambda: self._engine.partitions_for(topic))

    @override
    async def flush(self, timeout_s: float | None) -> None:
        await self._do(lambda: self._engine.flush(timeout_s))

    @override
    async def close(self, timeout_s: float | None) -> None:
        await self._do(lambda: self._engine.close(timeout_s))

    @override
    async def init_transactions(self) -> None:
        await self._do(self._engine.init_transactions)

    @override
    async def begin(self) -> None:
        await self._do(self._engine.begin)

    @override
    async def commit(self) -> None:
        await self._do(self._engine.commit)

    @override
    async def abort(self) -> None:
        await self._do(self._engine.abort)

    @override
    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        await self._do(lambda: self._engine.send_offsets(offsets, group))

    async def _do(self, call: Callable[[], Result]) -> Result:
        # One call at a time keeps the order: of two sends the first is the earlier record.
        async with self._one:
            return await asyncio.to_thread(call)


def async_engine(address: str, options: Options, clocks: Clocks, pipeline: SendPipeline) -> AsyncEngine:
    """Create the engine for an address."""
    if is_rota(address):
        return AsyncRotaEngine(address, options, clocks, pipeline)
    from rota.producer.kafka_engine import KafkaEngine

    return ThreadedEngine(KafkaEngine(address, options, clocks, pipeline))
