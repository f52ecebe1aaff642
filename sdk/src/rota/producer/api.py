"""`rota.Producer`: sends records, to Rota's own log or to Kafka, from any thread."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, Unpack

from rota import errors
from rota.addresses import address_of, is_rota
from rota.clocks import system_clocks
from rota.metadata import GroupMetadata
from rota.offsets import Offsets
from rota.producer import connections
from rota.producer.batches import Outcome
from rota.producer.engine import Engine
from rota.producer.futures import SendFuture, SentMany
from rota.producer.options import Options, Settings, options_of, settings_of
from rota.producer.pipeline import PreparedRecord, SendPipeline, all_bytes, check
from rota.records import Headers, OutgoingRecord

CLOSE_S = 30.0


class Producer:
    """
    Sends records to topics, in batches; one for each process is enough.

    >>> with rota.Producer("rota://127.0.0.1:7070") as producer:           # doctest: +SKIP
    ...     producer.send("orders", b"value", key=b"key")

    Settings have Kafka's names; `rota.producer.options.Options` lists them with their defaults. With a
    `transactional_id` records belong to transactions:

    >>> producer = rota.Producer("rota://127.0.0.1:7070", transactional_id="copy-0")     # doctest: +SKIP
    >>> producer.init_transactions()                                                     # doctest: +SKIP
    >>> with producer.transaction():                                                     # doctest: +SKIP
    ...     producer.send("copies", b"value")
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[Settings]) -> None:
        """`rota://host:port` for Rota's log, `host:port` for Kafka (needs the extra `rota[kafka]`)."""
        options, address = options_of(settings), address_of(bootstrap_servers)
        connections.check(options, address)
        self._pipeline = SendPipeline(options)
        self._pipeline.configure(settings_of(options, address))
        self._transactional = bool(options.transactional_id)
        self._closed = False
        # True while the outcome of a requested abort is unknown.
        self._aborting = False
        try:
            self._engine = _engine(address, options, self._pipeline)
        except BaseException:
            self._pipeline.close()
            raise
        # Looked up once, not for every record.
        self._send = self._engine.send
        self._prepares = self._pipeline.is_needed

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> SendFuture:
        """
        Queue a record for sending; the future returns its partition and offset.

        Without a partition the key decides, as in Kafka (murmur2); without a key the partition is that of the current batch. Waits
        up to `max_block_ms` while the buffer is full or the topic's partitions are unknown.
        """
        if not self._prepares:
            plain = type(value) is bytes and (key is None or type(key) is bytes)
            if not plain or timestamp_ms is not None or headers:
                check(value, key, timestamp_ms, headers)
                value, key = _bytes(value), _bytes(key)
            return self._send(topic, value, key, partition, timestamp_ms, headers)  # type: ignore[arg-type]
        record = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        prepared = self._pipeline.prepare(record, self._engine.partitions_for)
        try:
            return self._send(*prepared)
        except errors.RotaError as error:
            self._pipeline.report_unsent(prepared, error)
            raise

    def send_many(
        self, topic: str, values: Sequence[object], keys: Sequence[object] | None = None
    ) -> SentMany:
        """
        Queue many records of one topic at once: much cheaper than one by one.

        >>> producer.send_many("orders", [b"a", b"b", b"c"]).result()    # doctest: +SKIP
        """
        if keys is not None and len(keys) != len(values):
            raise errors.InvalidArgument(
                f"got {len(keys)} keys for {len(values)} values: pass one key per value"
            )
        if self._pipeline.is_needed or not all_bytes(values) or not all_bytes(keys or ()):
            each_key = keys if keys is not None else [None] * len(values)
            return self._send_each(
                [OutgoingRecord(topic, value, key) for value, key in zip(values, each_key, strict=True)]
            )
        return self._engine.send_many(topic, values, keys)  # type: ignore[arg-type]

    def _send_each(self, records: Sequence[OutgoingRecord]) -> SentMany:
        """Prepare all records, then queue them one by one; what is not queued is reported to the interceptors."""
        prepared: list[PreparedRecord] = []
        parts: list[tuple[Outcome, int, Sequence[int]]] = []
        try:
            for record in records:
                prepared.append(self._pipeline.prepare(record, self._engine.partitions_for))
            for position, each in enumerate(prepared):
                parts.append((*self._engine.append(*each), (position,)))
        except Exception as error:
            for each in prepared[len(parts) :]:
                self._pipeline.report_unsent(each, error)
            raise
        return SentMany(len(records), parts)

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic; UnknownTopicOrPartition if it does not exist."""
        self._check_open()
        return list(range(self._engine.partitions_for(topic)))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record that was sent so far has an outcome; TimedOut after `timeout` seconds."""
        self._check_open()
        self._engine.flush(timeout)

    def close(self, timeout: float | None = CLOSE_S) -> None:
        """Flush, or abort the open transaction, and close; a second call does nothing."""
        if not self._closed:
            self._closed = True
            try:
                self._engine.close(timeout)
            finally:
                self._pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Transactions

    def init_transactions(self) -> None:
        """Initialize transactions, once before the first: fences earlier producers of the `transactional_id`."""
        self._check_transactional()
        self._engine.init_transactions()

    def begin_transaction(self) -> None:
        """
        Begin a transaction: records and offsets sent from here on are committed together or not at all.

        First completes an abort whose outcome is unknown: `transaction()` cannot raise that error.
        """
        self._check_transactional()
        if self._aborting:
            self.abort_transaction()
        self._engine.begin()

    def commit_transaction(self) -> None:
        """
        Commit the transaction. After a retriable error the outcome is unknown: call it again; after any other error
        that is not fatal call `abort_transaction`.
        """
        self._check_transactional()
        self._engine.commit()

    def abort_transaction(self) -> None:
        """Abort the transaction. After a retriable error call it again, or begin the next one."""
        self._check_transactional()
        try:
            self._engine.abort()
        except errors.RotaError as error:
            self._aborting = error.retriable
            raise
        self._aborting = False

    def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: GroupMetadata) -> None:
        """
        Commit a group's offsets with the transaction: the next offset to read, by partition.

        Rejected if the member is no longer in that generation: other members own the partitions, and the transaction must be
        aborted.
        """
        self._check_transactional()
        self._engine.send_offsets(offsets, group_metadata)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """
        Begin a transaction; commit it at the end of the block, or abort it after an exception.

        >>> with producer.transaction():                                                      # doctest: +SKIP
        ...     producer.send("copies", record.value)
        ...     producer.send_offsets_to_transaction({("orders", 0): record.offset + 1}, member)
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException as error:
            if not _is_undecided(error):
                self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        if isinstance(error, errors.RotaError) and error.fatal:
            return
        try:
            self.abort_transaction()
        except errors.RotaError as failed:
            # The first error is the cause; this one is its consequence.
            error.add_note(f"the transaction could not be aborted either: {failed}")

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ProducerClosed("the producer is closed: create a new one")

    def _check_transactional(self) -> None:
        self._check_open()
        if not self._transactional:
            raise errors.IllegalState("the producer is not transactional: set transactional_id")


def _is_undecided(error: BaseException) -> bool:
    """Return whether a commit may have taken effect: an abort could then contradict it."""
    return isinstance(error, errors.UndecidedCommit)


def _bytes(given: object) -> object:
    return bytes(given) if isinstance(given, bytearray | memoryview) else given


def _engine(address: str, options: Options, pipeline: SendPipeline) -> Engine:
    if is_rota(address):
        from rota.producer.rota_blocking import BlockingRotaEngine

        return BlockingRotaEngine(address, options, system_clocks(), pipeline.batch_callback())
    from rota.producer.kafka_engine import KafkaEngine

    return KafkaEngine(address, options, system_clocks(), pipeline)
