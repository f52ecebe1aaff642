"""`rota.AsyncProducer`: the producer for asyncio."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, Unpack

from rota import errors
from rota.addresses import address_of
from rota.clocks import system_clocks
from rota.metadata import GroupMetadata
from rota.offsets import Offsets
from rota.producer import connections
from rota.producer.async_engines import AsyncEngine, async_engine
from rota.producer.batches import Outcome
from rota.producer.futures import AsyncSendFuture, SentMany
from rota.producer.options import Settings, options_of, settings_of
from rota.producer.pipeline import PreparedRecord, SendPipeline, all_bytes, as_bytes, check
from rota.records import Headers, OutgoingRecord, RecordMetadata

CLOSE_S = 30.0


class AsyncProducer:
    """
    `Producer` on an application's own event loop, where it is entered or started.

    >>> async with rota.AsyncProducer("rota://127.0.0.1:7070") as producer:    # doctest: +SKIP
    ...     metadata = await producer.send_and_wait("orders", b"value")
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[Settings]) -> None:
        """Connect to `rota://host:port` for Rota's log, `host:port` for Kafka, whose client works in its own threads."""
        self._address = address_of(bootstrap_servers)
        self._options = options_of(settings)
        connections.check(self._options, self._address)
        self._pipeline = SendPipeline(self._options)
        self._running: AsyncEngine | None = None
        # True while the outcome of a requested abort is unknown.
        self._aborting = False

    async def start(self) -> None:
        """Connect; `async with` calls it."""
        self._pipeline.configure(settings_of(self._options, self._address))
        self._running = async_engine(self._address, self._options, system_clocks(), self._pipeline)

    @property
    def _engine(self) -> AsyncEngine:
        if self._running is None:
            raise errors.IllegalState("the producer is not started: use `async with`, or await start() first")
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
        """Queue a record once there is room for it; the future returns its partition and offset."""
        if self._pipeline.is_needed:
            record = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
            prepared = await self._prepared(record)
        else:
            check(value, key, timestamp_ms, headers)
            prepared = PreparedRecord(
                topic, as_bytes(value, "value"), as_bytes(key, "key"), partition, timestamp_ms, headers
            )
        return AsyncSendFuture(*await self._queue(prepared))

    async def _queue(self, prepared: PreparedRecord) -> tuple[Outcome, int]:
        try:
            return await self._engine.send(prepared)
        except errors.RotaError as error:
            self._pipeline.report_unsent(prepared, error)
            raise

    async def _prepared(self, record: OutgoingRecord) -> PreparedRecord:
        record = self._pipeline.intercept(record)
        count = 0
        if self._options.partitioner is not None and record.partition is None:
            try:
                count = await self._engine.partitions_for(record.topic)
            except errors.RotaError as error:
                self._pipeline.report_unsent(record, error)
                raise
        return self._pipeline.serialize(record, lambda _: count)

    async def send_and_wait(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send, and wait for the record's partition and offset."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def send_many(
        self, topic: str, values: Sequence[object], keys: Sequence[object] | None = None
    ) -> SentMany:
        """Queue many records of one topic at once; awaiting the result returns their partitions and offsets."""
        if keys is not None and len(keys) != len(values):
            raise errors.InvalidArgument(
                f"got {len(keys)} keys for {len(values)} values: pass one key per value"
            )
        if not self._pipeline.is_needed and all_bytes(values) and all_bytes(keys or ()):
            return await self._engine.send_many(topic, values, keys)  # type: ignore[arg-type]
        each_key = keys if keys is not None else [None] * len(values)
        appended = [
            await self._queue(await self._prepared(OutgoingRecord(topic, value, key)))
            for value, key in zip(values, each_key, strict=True)
        ]
        return SentMany(len(values), [(batch, index, (at,)) for at, (batch, index) in enumerate(appended)])

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return list(range(await self._engine.partitions_for(topic)))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record that was sent so far has an outcome; TimedOut after `timeout` seconds."""
        await self._engine.flush(timeout)

    async def close(self, timeout: float | None = CLOSE_S) -> None:
        """Flush, or abort the open transaction, and close."""
        if self._running is not None:
            engine, self._running = self._running, None
            try:
                await engine.close(timeout)
            finally:
                self._pipeline.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Transactions: as in `Producer`

    async def init_transactions(self) -> None:
        """Initialize transactions, once before the first: fences earlier producers of the `transactional_id`."""
        self._check_transactional()
        await self._engine.init_transactions()

    async def begin_transaction(self) -> None:
        """
        Begin a transaction: records and offsets sent from here on are committed together or not at all.

        First completes an abort whose outcome is unknown: `transaction()` cannot raise that error.
        """
        self._check_transactional()
        if self._aborting:
            await self.abort_transaction()
        await self._engine.begin()

    async def commit_transaction(self) -> None:
        """Commit the transaction."""
        self._check_transactional()
        await self._engine.commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction. After a retriable error call it again, or begin the next one."""
        self._check_transactional()
        try:
            await self._engine.abort()
        except errors.RotaError as error:
            self._aborting = error.retriable
            raise
        self._aborting = False

    async def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction: the next offset to read, by partition."""
        self._check_transactional()
        await self._engine.send_offsets(offsets, group_metadata)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction; commit it at the end of the block, or abort it after an exception."""
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
            # The first error is the cause; this one is its consequence.
            error.add_note(f"the transaction could not be aborted either: {failed}")

    def _check_transactional(self) -> None:
        if not self._options.transactional_id:
            raise errors.IllegalState("the producer is not transactional: set transactional_id")
