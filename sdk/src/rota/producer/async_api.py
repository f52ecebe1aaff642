"""`rota.AsyncProducer`: the same producer for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, Unpack

from rota import errors
from rota.addresses import address_of, is_rota
from rota.metadata import GroupMetadata
from rota.offsets import Offsets
from rota.producer.accumulator import Full, UnknownTopic
from rota.producer.batches import Batch
from rota.producer.clocks import clocks
from rota.producer.futures import AsyncSendFuture
from rota.producer.options import Settings, options_of
from rota.producer.preparing import Preparation, Prepared, check
from rota.producer.rota_engine import RotaEngine
from rota.records import Headers, OutgoingRecord, RecordMetadata

CLOSE_S = 30.0


class AsyncProducer:
    """
    `Producer` on an application's own event loop; to be entered or started there.

    >>> async with rota.AsyncProducer("rota://127.0.0.1:7070") as producer:    # doctest: +SKIP
    ...     metadata = await producer.send_and_wait("orders", b"value")
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[Settings]) -> None:
        self._address = address_of(bootstrap_servers)
        if not is_rota(self._address):
            raise errors.NotSupported(
                "AsyncProducer speaks to rota:// only: over Kafka use Producer, whose send does not wait for the broker"
            )
        self._options = options_of(settings)
        self._preparation = Preparation(self._options)
        self._clocks = clocks()
        self._running: RotaEngine | None = None

    async def start(self) -> None:
        """Connect; `async with` does it."""
        self._running = RotaEngine(self._address, self._options, self._clocks)
        self._running.accumulator.on_batch = self._preparation.watcher()

    @property
    def _engine(self) -> RotaEngine:
        if self._running is None:
            raise errors.IllegalState("the producer does not run: use `async with`, or await start() first")
        return self._running

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> AsyncSendFuture:
        """Hand a record over once there is room for it; awaiting the future then tells where it lies."""
        record = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        check(None, None, timestamp_ms, headers)
        if self._options.partitioner is not None:
            await self.partitions_for(topic)
        prepared = self._preparation.prepare(record, lambda name: self._engine.accumulator.partitions[name])
        return AsyncSendFuture(*await self._patiently(prepared))

    async def send_and_wait(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send, and wait until it is known where the record lies."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def _patiently(self, record: Prepared) -> tuple[Batch, int]:
        deadline_s = self._clocks.monotonic_s() + self._options.max_block_ms / 1000
        while True:
            try:
                return self._engine.accumulator.send(*record)
            except UnknownTopic:
                await self._engine.load_partitions(record.topic)
            except Full:
                await self._await_room(deadline_s)

    async def _await_room(self, deadline_s: float) -> None:
        room = asyncio.Event()
        self._engine.accumulator.when_there_is_room(room.set)
        try:
            async with asyncio.timeout(max(deadline_s - self._clocks.monotonic_s(), 0)):
                await room.wait()
        except TimeoutError:
            raise errors.BufferExhausted(
                f"the buffer stayed full for {self._options.max_block_ms} ms (max_block_ms): send more slowly, give it "
                "more buffer_memory, or see whether the server keeps up"
            ) from None

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        known = self._engine.accumulator.partitions.get(topic)
        return list(range(known if known is not None else await self._engine.load_partitions(topic)))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record that was sent so far is decided; TimedOut after `timeout` seconds."""
        await self._engine.flush(timeout)

    async def close(self, timeout: float | None = CLOSE_S) -> None:
        """Flush, or abort the open transaction, and end."""
        if self._running is not None:
            engine, self._running = self._running, None
            await engine.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Transactions: as in `Producer`

    async def init_transactions(self) -> None:
        """Once, before the first transaction: fences whoever used the `transactional_id` before."""
        self._check_transactional()
        await self._engine.init_transactions()

    async def begin_transaction(self) -> None:
        """From here on records, and offsets that are sent, count together or not at all."""
        self._check_transactional()
        self._engine.begin()

    async def commit_transaction(self) -> None:
        """Make the transaction count."""
        self._check_transactional()
        await self._engine.commit()

    async def abort_transaction(self) -> None:
        """Make nothing of the transaction count."""
        self._check_transactional()
        await self._engine.abort()

    async def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction: the next to read, by partition."""
        self._check_transactional()
        await self._engine.send_offsets(offsets, group_metadata)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin; commit in the end, or abort when an exception comes through."""
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException as error:
            if not isinstance(error, errors.UndecidedCommit):
                await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        if isinstance(error, errors.RotaError) and error.fatal:
            return
        try:
            await self.abort_transaction()
        except errors.RotaError as failed:
            # The first error says why; this one comes from the same trouble.
            error.add_note(f"the transaction could not be aborted either: {failed}")

    def _check_transactional(self) -> None:
        if not self._options.transactional_id:
            raise errors.IllegalState("this producer has no transactions: give it a transactional_id")
