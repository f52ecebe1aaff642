"""`rota.AsyncConsumer`: the consumer for asyncio."""

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from rota import errors
from rota.clocks import system_clocks
from rota.consumer.arguments import (
    PartitionLike,
    check_assigned,
    sidecar_of,
    subscription_of,
    topic_partitions,
    validated_offsets,
)
from rota.consumer.batch_slice import BatchSlice
from rota.consumer.core import Rebalance, RebalanceKind
from rota.consumer.engine import Engine, OnCommit
from rota.consumer.listeners import AsyncRebalanceListener, Partitions, RebalanceListener
from rota.consumer.metrics import Metrics
from rota.consumer.options import Options, Settings, options_of
from rota.consumer.pipeline import PollPipeline, Records, by_partition, deserialization_failed
from rota.consumer.sidecars import Sidecar
from rota.metadata import GroupMetadata
from rota.offsets import OffsetAndMetadata, OffsetAndTimestamp, Offsets
from rota.records import Record, TopicPartition

Listener = AsyncRebalanceListener | RebalanceListener


class AsyncConsumer:
    """
    `Consumer` on an application's own event loop, where it is entered. Methods have the same semantics, and are awaited.

    >>> async with rota.AsyncConsumer("orders", sidecar="127.0.0.1:7080") as consumer:    # doctest: +SKIP
    ...     async for record in consumer:
    ...         print(record.offset, record.value)

    Invariant: one task uses it at a time. A listener's methods may be asynchronous.
    """

    def __init__(self, *topics: str, listener: Listener | None = None, **settings: Unpack[Settings]) -> None:
        options = options_of(settings)
        self._set_up(options, sidecar_of(options), topics, listener)

    @classmethod
    def over(cls, sidecar: Sidecar, options: Options) -> Self:
        """Create a consumer of another `Sidecar`; `rota.testing` has one in memory."""
        consumer = cls.__new__(cls)
        consumer._set_up(options, sidecar, (), None)
        return consumer

    def _set_up(
        self, options: Options, sidecar: Sidecar, topics: tuple[str, ...], listener: Listener | None
    ) -> None:
        self._first = (topics, listener)
        self._options = options
        self._pipeline = PollPipeline(options)
        self._listener: Listener = RebalanceListener()
        self._closed = False
        self._is_used = False
        self._clock = system_clocks().monotonic_s
        self._engine = Engine(options, sidecar, self._clock)
        self._slice: BatchSlice | None = None
        self._records: Iterator[Record[Any, Any]] = iter(())
        self._next_offset = 0

    async def start(self) -> None:
        """Subscribe to the topics of the constructor; `async with` calls it."""
        topics, listener = self._first
        if topics:
            await self.subscribe(topics, listener=listener)

    # Subscription and assignment

    async def subscribe(
        self, topics: str | Iterable[str] | None = None, pattern: str = "", listener: Listener | None = None
    ) -> None:
        """Subscribe to topics, or to all topics whose whole name matches a pattern; an empty list of topics unsubscribes."""
        subscription = subscription_of(topics, pattern)
        if not subscription:
            await self.unsubscribe()
            return
        self._check()
        if self._engine.is_manual:
            raise errors.IllegalState(
                "partitions were assigned with assign(): call unsubscribe() before subscribe()"
            )
        self._listener = listener or RebalanceListener()
        await self._engine.subscribe(subscription, self._within_s(None))

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        return set(self._engine.subscription.topics)

    async def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Assign partitions manually, without the group's assignment."""
        self._check()
        if self._engine.subscription:
            raise errors.IllegalState("the consumer is subscribed: call unsubscribe() before assign()")
        await self._engine.assign(topic_partitions(partitions), self._within_s(None))

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._engine.core.assigned)

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        self._check()
        await self._engine.finish(self._within_s(None), commits=self._options.enable_auto_commit)
        await self._revoke_all()
        await self._engine.unsubscribe(self._within_s(None))

    async def _revoke_all(self) -> None:
        core = self._engine.core
        if self._engine.is_manual:
            return
        if (loss := core.unreported_loss()) is not None:
            core.begin_rebalance(loss, {})
            try:
                await self._call_listener(loss)
            finally:
                core.end_rebalance(loss)
        if core.assigned:
            await _await_if_async(self._listener.on_partitions_revoked, sorted(core.assigned))

    # Consumption

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Return the next records, by partition; wait up to `timeout_ms` for the first ones."""
        slices = await self.poll_batches(timeout_ms, max_records)
        made: list[tuple[BatchSlice, list[Record[Any, Any]]]] = []
        for index, batch_slice in enumerate(slices):
            records, failed = self._pipeline.deserialize(batch_slice)
            if records:
                made.append((batch_slice, records))
            if failed is not None:
                self._put_back(slices[index:], batch_slice.base_offset + len(records))
                if not made:
                    raise deserialization_failed(batch_slice, batch_slice.base_offset, failed) from failed
                break
        return self._pipeline.intercept(by_partition(made))

    async def poll_batches(self, timeout_ms: float = 0, max_records: int | None = None) -> list[BatchSlice]:
        """Poll, and return the records in columns, without deserializers and interceptors."""
        self._check()
        return await self._next(timeout_ms, max_records)

    async def _next(self, timeout_ms: float, records_max: int | None) -> list[BatchSlice]:
        if self._is_used:
            raise errors.IllegalState("the consumer is in use by another task: create one per task")
        self._is_used = True
        try:
            deadline_s = self._clock() + timeout_ms / 1000
            records_max = records_max or self._options.max_poll_records
            step = await self._engine.first_step(records_max, deadline_s)
            while True:
                self._engine.handoff.confirm()
                self._pipeline.run_commit_callbacks(self._engine)
                if not isinstance(step, Rebalance):
                    return step
                try:
                    await self._call_listener(step)
                except BaseException:
                    # A loss is final, even if the listener raises.
                    if step.kind is RebalanceKind.LOST:
                        await self._engine.end_rebalance(step)
                    raise
                await self._engine.end_rebalance(step)
                step = await self._engine.step(records_max, deadline_s)
        finally:
            self._is_used = False

    async def _call_listener(self, event: Rebalance) -> None:
        partitions = list(event.partitions)
        if event.kind is RebalanceKind.ASSIGNED:
            await _await_if_async(self._listener.on_partitions_assigned, partitions)
        elif event.kind is RebalanceKind.REVOKING:
            await _await_if_async(self._listener.on_partitions_revoked, partitions)
        else:
            await _await_if_async(self._listener.on_partitions_lost, partitions)

    def _put_back(self, slices: list[BatchSlice], offset: int) -> None:
        for batch_slice in reversed(slices[1:]):
            self._engine.handoff.rewind(batch_slice, batch_slice.base_offset)
        self._engine.handoff.rewind(slices[0], offset)

    def __aiter__(self) -> Self:
        """Iterate over records; an auto commit covers the records before the current one."""
        return self

    async def __anext__(self) -> Record[Any, Any]:
        while True:
            try:
                record = next(self._records, None)
            except Exception as error:
                batch_slice, offset = self._slice, self._next_offset
                self._put_back_unread()
                assert batch_slice is not None
                raise deserialization_failed(batch_slice, offset, error) from error
            if record is not None:
                self._next_offset = record.offset + 1
                return record
            if not await self._next_slice():
                raise StopAsyncIteration

    async def _next_slice(self) -> bool:
        self._slice = None
        timeout_ms = self._options.consumer_timeout_ms
        slices = await self.poll_batches(timeout_ms)
        while not slices and timeout_ms == math.inf:
            slices = await self.poll_batches(timeout_ms)
        if not slices:
            return False
        self._slice = slices[0]
        self._next_offset = slices[0].base_offset
        if len(slices) > 1:
            self._put_back(slices[1:], slices[1].base_offset)
        self._records = self._pipeline.records(self._slice)
        if self._options.interceptors:
            records = self._pipeline.intercept({self._slice.topic_partition: list(self._records)})
            self._records = iter([record for some in records.values() for record in some])
        return True

    def _put_back_unread(self) -> None:
        batch_slice, self._slice, self._records = self._slice, None, iter(())
        if batch_slice is not None:
            self._engine.handoff.rewind(batch_slice, self._next_offset)

    def wakeup(self) -> None:
        """Make the current poll, or else the next one, raise `rota.errors.WokenUp`; called on the consumer's loop."""
        self._engine.wake()

    # Offsets

    async def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit offsets, each the next one to read; by default all consumed positions. Durable when it returns."""
        wanted = validated_offsets(offsets)
        self._check()
        await self._engine.commit(wanted, self._within_s(timeout_ms))
        self._pipeline.run_commit_callbacks(self._engine)

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> None:
        """Start a commit and return at once; see `Consumer.commit_async`."""
        wanted = validated_offsets(offsets)
        self._check()
        self._engine.commit_async(wanted, callback)

    async def committed(
        self, partition: PartitionLike, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """Return the group's committed offset of a partition, with its metadata if asked; None without a commit."""
        (topic_partition,) = topic_partitions([partition])
        self._check()
        found = await self._engine.client.committed([topic_partition], self._within_s(timeout_ms))
        offset = found.get(topic_partition)
        return offset if metadata or offset is None else offset.offset

    async def position(self, partition: PartitionLike, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record to return; wait until it is known."""
        (topic_partition,) = topic_partitions([partition])
        self._check()
        check_assigned(self._engine.core, [topic_partition])
        return await self._engine.position(topic_partition, self._within_s(timeout_ms))

    async def seek(self, partition: PartitionLike, offset: int) -> None:
        """Continue at this offset."""
        (topic_partition,) = topic_partitions([partition])
        if offset < 0:
            raise errors.InvalidArgument(f"{offset} is not an offset: use 0 or more, or seek_to_end")
        await self._seek({topic_partition: offset})

    async def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Continue at the beginning of partitions; of all assigned ones if none is given."""
        self._check()
        wanted = check_assigned(self._engine.core, topic_partitions(partitions))
        await self._seek(await self._engine.client.beginnings(wanted, self._within_s(None)))

    async def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Continue at the end of partitions; of all assigned ones if none is given."""
        self._check()
        wanted = check_assigned(self._engine.core, topic_partitions(partitions))
        await self._seek(await self._engine.client.ends(wanted, self._within_s(None)))

    async def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._check()
        check_assigned(self._engine.core, list(offsets))
        if offsets:
            await self._engine.seek(offsets, self._within_s(None))

    # Flow control

    async def pause(self, *partitions: PartitionLike) -> None:
        """Stop returning records of partitions until `resume`."""
        self._check()
        if wanted := topic_partitions(partitions):
            check_assigned(self._engine.core, wanted)
            await self._engine.pause(wanted, self._within_s(None))

    async def resume(self, *partitions: PartitionLike) -> None:
        """Return records of these partitions again."""
        self._check()
        if wanted := topic_partitions(partitions):
            check_assigned(self._engine.core, wanted)
            await self._engine.resume(wanted, self._within_s(None))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._engine.core.paused)

    # Metadata

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic; None if it does not exist."""
        self._check()
        return await self._engine.client.partitions_for_topic(topic, self._within_s(None))

    async def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the topics that the consumer may see, without internal ones."""
        self._check()
        return await self._engine.client.topics(self._within_s(timeout_ms))

    async def metrics(self) -> Metrics:
        """Return the metrics of the sidecar."""
        self._check()
        return await self._engine.client.metrics(self._within_s(None))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a timestamp in milliseconds; None if there is none."""
        times = {TopicPartition(*partition): time for partition, time in timestamps.items()}
        self._check()
        found = await self._engine.client.offsets_for_times(times, self._within_s(timeout_ms))
        return {partition: found.get(partition) for partition in times}

    async def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        self._check()
        return dict(
            await self._engine.client.beginnings(topic_partitions(partitions), self._within_s(timeout_ms))
        )

    async def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: the offset after its last readable record."""
        self._check()
        return dict(await self._engine.client.ends(topic_partitions(partitions), self._within_s(timeout_ms)))

    async def group_metadata(self) -> GroupMetadata:
        """Return the member's identity in its group, for producers and stores that fence on it."""
        self._check()
        return self._engine.group_metadata()

    # Shutdown

    async def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit consumed positions if auto commit is on, release the partitions, and detach."""
        if self._closed:
            return
        self._check()
        within_s = self._within_s(timeout_ms)
        commits = autocommit and self._options.enable_auto_commit
        try:
            await self._engine.finish(within_s, commits=commits)
            await self._revoke_all()
        finally:
            self._closed = True
            await self._engine.close(within_s)
            self._pipeline.run_commit_callbacks(self._engine)
            self._pipeline.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check(self) -> None:
        """Raise ConsumerClosed after `close`; else put records back that the iteration has not returned."""
        if self._closed:
            raise errors.ConsumerClosed("the consumer is closed: create a new one")
        self._put_back_unread()

    def _within_s(self, timeout_ms: float | None) -> float:
        return (self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000


async def _await_if_async(
    listen: Callable[[Partitions], Awaitable[None] | None], partitions: Partitions
) -> None:
    waiting = listen(partitions)
    if waiting is not None:
        await waiting
