"""`rota.Consumer`: consumes topics as a member of a group, with the methods of Kafka's consumer."""

import math
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from rota import errors
from rota.clocks import system_clocks
from rota.connection import background
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
from rota.consumer.listeners import RebalanceListener
from rota.consumer.metrics import Metrics
from rota.consumer.options import Options, Settings, options_of
from rota.consumer.pipeline import PollPipeline, Records, by_partition, deserialization_failed
from rota.consumer.sidecars import Sidecar
from rota.metadata import GroupMetadata
from rota.offsets import OffsetAndMetadata, OffsetAndTimestamp, Offsets
from rota.records import Record, TopicPartition

Result = TypeVar("Result")


class Consumer:
    """
    Consumes topics as a member of a group; create one per thread.

    >>> with rota.Consumer("orders", group_id="billing", bootstrap_servers="rota://127.0.0.1:7070") as consumer:
    ...     for record in consumer:                                                       # doctest: +SKIP
    ...         print(record.topic, record.partition, record.offset, record.value)

    The methods have the semantics of Kafka's consumer; docs/consumer-api.md compares both. Records and rebalances reach the
    application in `poll` and in iteration only: an application that does not poll keeps its partitions until a deadline of
    the sidecar expires.

    Beside a sidecar, in a pod, omit the group and the servers: the sidecar has them, and ROTA_SIDECAR is its address.
    `rota.consumer.options.Options` lists all settings. Invariant: one thread uses a consumer at a time; only `wakeup` may be
    called from other threads and from signal handlers.
    """

    def __init__(
        self, *topics: str, listener: RebalanceListener | None = None, **settings: Unpack[Settings]
    ) -> None:
        self._set_up(options_of(settings), sidecar_of)
        if topics:
            self.subscribe(topics, listener=listener)

    @classmethod
    def over(cls, sidecar: Sidecar, options: Options) -> Self:
        """Create a consumer of another `Sidecar`; `rota.testing` has one in memory."""
        consumer = cls.__new__(cls)
        consumer._set_up(options, lambda _: sidecar)
        return consumer

    def _set_up(self, options: Options, sidecar: Callable[[Options], Sidecar]) -> None:
        self._options = options
        self._pipeline = PollPipeline(options)
        self._listener = RebalanceListener()
        self._using = threading.RLock()
        self._closed = False
        self._background = background()
        self._clock = system_clocks().monotonic_s
        self._engine = self._background.run(_create_engine(options, sidecar, self._clock))
        # The slice of the current iteration.
        self._slice: BatchSlice | None = None
        self._records: Iterator[Record[Any, Any]] = iter(())
        self._next_offset = 0

    # Subscription and assignment

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        pattern: str = "",
        listener: RebalanceListener | None = None,
    ) -> None:
        """
        Subscribe to topics, or to all topics whose whole name matches a pattern; replaces the previous subscription. An empty list
        of topics unsubscribes.

        >>> consumer.subscribe(["orders", "payments"])        # doctest: +SKIP
        >>> consumer.subscribe(pattern=r"orders-.*")          # doctest: +SKIP
        """
        subscription = subscription_of(topics, pattern)
        if not subscription:
            self.unsubscribe()
            return
        with self._exclusive():
            if self._engine.is_manual:
                raise errors.IllegalState(
                    "partitions were assigned with assign(): call unsubscribe() before subscribe()"
                )
            self._listener = listener or RebalanceListener()
            self._run(self._engine.subscribe(subscription, self._within_s(None)))

    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        return set(self._engine.subscription.topics)

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Assign partitions manually, without the group's assignment; replaces the previous assignment."""
        wanted = topic_partitions(partitions)
        with self._exclusive():
            if self._engine.subscription:
                raise errors.IllegalState("the consumer is subscribed: call unsubscribe() before assign()")
            self._run(self._engine.assign(wanted, self._within_s(None)))

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._engine.core.assigned)

    def unsubscribe(self) -> None:
        """Give up all partitions: commit consumed offsets if auto commit is on, and leave the group."""
        with self._exclusive():
            self._run(self._engine.finish(self._within_s(None), commits=self._options.enable_auto_commit))
            self._revoke_all()
            self._run(self._engine.unsubscribe(self._within_s(None)))

    def _revoke_all(self) -> None:
        core = self._engine.core
        if self._engine.is_manual:
            return
        if (loss := core.unreported_loss()) is not None:
            self._call(core.begin_rebalance, loss, {})
            try:
                self._call_listener(loss)
            finally:
                self._call(core.end_rebalance, loss)
        if core.assigned:
            self._listener.on_partitions_revoked(sorted(core.assigned))

    # Consumption

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """
        Return the next records, by partition; wait up to `timeout_ms` for the first ones.

        A poll finishes the records of earlier polls, and runs the listener's callbacks.

        >>> for partition, records in consumer.poll(timeout_ms=500).items():    # doctest: +SKIP
        ...     print(partition, len(records))
        """
        with self._exclusive():
            slices = self._next(timeout_ms, max_records)
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

    def poll_batches(self, timeout_ms: float = 0, max_records: int | None = None) -> list[BatchSlice]:
        """
        Poll, and return the records in columns: the fastest way, without deserializers and interceptors.

        >>> for batch in consumer.poll_batches(timeout_ms=500, max_records=10_000):    # doctest: +SKIP
        ...     total += sum(map(len, batch.values))
        """
        with self._exclusive():
            return self._next(timeout_ms, max_records)

    def _next(self, timeout_ms: float, records_max: int | None) -> list[BatchSlice]:
        deadline_s = self._clock() + timeout_ms / 1000
        records_max = records_max or self._options.max_poll_records
        engine = self._engine
        step = self._background.run_with_early_result(
            lambda give: engine.first_step(records_max, deadline_s, give)
        )
        while True:
            self._engine.handoff.confirm()
            self._pipeline.run_commit_callbacks(self._engine)
            if not isinstance(step, Rebalance):
                return step
            try:
                self._call_listener(step)
            except BaseException:
                # A loss is final, even if the listener raises.
                if step.kind is RebalanceKind.LOST:
                    self._run(self._engine.end_rebalance(step))
                raise
            self._run(self._engine.end_rebalance(step))
            step = self._background.run_with_early_result(
                lambda give: engine.step(records_max, deadline_s, give)
            )

    def _call_listener(self, event: Rebalance) -> None:
        partitions = list(event.partitions)
        if event.kind is RebalanceKind.ASSIGNED:
            self._listener.on_partitions_assigned(partitions)
        elif event.kind is RebalanceKind.REVOKING:
            self._listener.on_partitions_revoked(partitions)
        else:
            self._listener.on_partitions_lost(partitions)

    def _put_back(self, slices: list[BatchSlice], offset: int) -> None:
        for batch_slice in reversed(slices[1:]):
            self._call(self._engine.handoff.rewind, batch_slice, batch_slice.base_offset)
        self._call(self._engine.handoff.rewind, slices[0], offset)

    def __iter__(self) -> Iterator[Record[Any, Any]]:
        """Iterate over records; an auto commit covers the records before the current one."""
        return self

    def __next__(self) -> Record[Any, Any]:
        with self._exclusive(settles=False):
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
                if not self._next_slice():
                    raise StopIteration

    def _next_slice(self) -> bool:
        self._slice = None
        timeout_ms = self._options.consumer_timeout_ms
        slices = self._next(timeout_ms, None)
        while not slices and timeout_ms == math.inf:
            slices = self._next(timeout_ms, None)
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
        """Put records back that the iteration has not returned."""
        batch_slice, self._slice, self._records = self._slice, None, iter(())
        if batch_slice is not None:
            self._call(self._engine.handoff.rewind, batch_slice, self._next_offset)

    def wakeup(self) -> None:
        """Make the current poll, or else the next one, raise `rota.errors.WokenUp`; callable from any thread."""
        self._background.loop.call_soon_threadsafe(self._engine.wake)

    # Offsets

    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """
        Commit offsets, each the next one to read; by default all consumed positions. Durable when it returns.

        Retriable errors are retried. Raises `rota.errors.IllegalGeneration` when a partition is owned by another member by now.

        >>> consumer.commit({("orders", 0): record.offset + 1})    # doctest: +SKIP
        """
        wanted = validated_offsets(offsets)
        with self._exclusive():
            self._run(self._engine.commit(wanted, self._within_s(timeout_ms)))
            self._pipeline.run_commit_callbacks(self._engine)

    def commit_async(self, offsets: Offsets | None = None, callback: OnCommit | None = None) -> None:
        """
        Start a commit and return at once.

        The sidecar retries retriable errors within `default_api_timeout_ms`, and never after a later commit; other errors are
        not retried. A later call of this consumer runs the callback, with the offsets and None or the error, in the order of
        the commits.
        """
        wanted = validated_offsets(offsets)
        with self._exclusive():
            self._call(self._engine.commit_async, wanted, callback)
            self._pipeline.run_commit_callbacks(self._engine)

    def committed(
        self,
        partition: PartitionLike,
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> int | OffsetAndMetadata | None:
        """Return the group's committed offset of a partition, with its metadata if asked; None without a commit."""
        (topic_partition,) = topic_partitions([partition])
        with self._exclusive():
            found = self._run(self._engine.client.committed([topic_partition], self._within_s(timeout_ms)))
        offset = found.get(topic_partition)
        return offset if metadata or offset is None else offset.offset

    def position(self, partition: PartitionLike, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record to return; wait until it is known."""
        (topic_partition,) = topic_partitions([partition])
        with self._exclusive():
            check_assigned(self._engine.core, [topic_partition])
            return self._run(self._engine.position(topic_partition, self._within_s(timeout_ms)))

    def seek(self, partition: PartitionLike, offset: int) -> None:
        """Continue at this offset. Later commits of this consumer may be lower than earlier ones."""
        (topic_partition,) = topic_partitions([partition])
        if offset < 0:
            raise errors.InvalidArgument(f"{offset} is not an offset: use 0 or more, or seek_to_end")
        self._seek({topic_partition: offset})

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Continue at the beginning of partitions; of all assigned ones if none is given."""
        with self._exclusive():
            wanted = check_assigned(self._engine.core, topic_partitions(partitions))
            self._seek(self._run(self._engine.client.beginnings(wanted, self._within_s(None))))

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Continue at the end of partitions; of all assigned ones if none is given."""
        with self._exclusive():
            wanted = check_assigned(self._engine.core, topic_partitions(partitions))
            self._seek(self._run(self._engine.client.ends(wanted, self._within_s(None))))

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._exclusive():
            check_assigned(self._engine.core, list(offsets))
            if offsets:
                self._run(self._engine.seek(offsets, self._within_s(None)))

    # Flow control

    def pause(self, *partitions: PartitionLike) -> None:
        """Stop returning records of partitions until `resume`; they stay assigned, and polls return records of the others."""
        with self._exclusive():
            if wanted := topic_partitions(partitions):
                check_assigned(self._engine.core, wanted)
                self._run(self._engine.pause(wanted, self._within_s(None)))

    def resume(self, *partitions: PartitionLike) -> None:
        """Return records of these partitions again."""
        with self._exclusive():
            if wanted := topic_partitions(partitions):
                check_assigned(self._engine.core, wanted)
                self._run(self._engine.resume(wanted, self._within_s(None)))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._engine.core.paused)

    # Metadata

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic; None if it does not exist."""
        with self._exclusive():
            return self._run(self._engine.client.partitions_for_topic(topic, self._within_s(None)))

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the topics that the consumer may see, without internal ones."""
        with self._exclusive():
            return self._run(self._engine.client.topics(self._within_s(timeout_ms)))

    def metrics(self) -> Metrics:
        """
        Return the metrics of the sidecar, as Prometheus gets them; docs/reference/metrics.md lists them.

        >>> consumer.metrics()[rota.MetricName.of("rota_assigned_partitions", group="billing")]    # doctest: +SKIP
        """
        with self._exclusive():
            return self._run(self._engine.client.metrics(self._within_s(None)))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition at or after a timestamp in milliseconds; None if there is none."""
        times = {TopicPartition(*partition): time for partition, time in timestamps.items()}
        with self._exclusive():
            found = self._run(self._engine.client.offsets_for_times(times, self._within_s(timeout_ms)))
        return {partition: found.get(partition) for partition in times}

    def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        with self._exclusive():
            asked = self._engine.client.beginnings(topic_partitions(partitions), self._within_s(timeout_ms))
            return dict(self._run(asked))

    def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition: the offset after its last readable record."""
        with self._exclusive():
            asked = self._engine.client.ends(topic_partitions(partitions), self._within_s(timeout_ms))
            return dict(self._run(asked))

    def group_metadata(self) -> GroupMetadata:
        """
        Return the member's identity in its group, for producers and stores that fence on it.

        The identity is of an old generation until polls have reported all losses: so offsets of a partition that another member
        owns by now are rejected.

        >>> producer.send_offsets_to_transaction(offsets, consumer.group_metadata())    # doctest: +SKIP
        """
        with self._exclusive():
            return self._engine.group_metadata()

    # Shutdown

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit consumed positions if auto commit is on, release the partitions, and detach."""
        if self._closed:
            return
        with self._exclusive():
            within_s = self._within_s(timeout_ms)
            commits = autocommit and self._options.enable_auto_commit
            try:
                self._run(self._engine.finish(within_s, commits=commits))
                self._revoke_all()
            finally:
                self._closed = True
                self._run(self._engine.close(within_s))
                self._pipeline.run_commit_callbacks(self._engine)
                self._pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Internals

    @contextmanager
    def _exclusive(self, *, settles: bool = True) -> Iterator[None]:
        """Exclude other threads for the duration of a call, and settle the current iteration first."""
        if not self._using.acquire(blocking=False):
            raise errors.IllegalState(
                "the consumer is in use by another thread: create one per thread; only wakeup() may be called from others"
            )
        try:
            if self._closed:
                raise errors.ConsumerClosed("the consumer is closed: create a new one")
            if settles and self._slice is not None:
                self._put_back_unread()
            yield
        finally:
            self._using.release()

    def _within_s(self, timeout_ms: float | None) -> float:
        return (self._options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._background.run(work)

    def _call(self, function: Callable[..., object], *given: object) -> None:
        self._run(_called(function, *given))


async def _create_engine(
    options: Options, sidecar: Callable[[Options], Sidecar], clock: Callable[[], float]
) -> Engine:
    return Engine(options, sidecar(options), clock)


async def _called(function: Callable[..., object], *given: object) -> None:
    function(*given)
