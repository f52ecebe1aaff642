"""
Producer on Kafka, through confluent-kafka (librdkafka), with Rota's names.

Imported only for a Kafka address. librdkafka batches, numbers and retries by itself; this engine translates settings,
futures and errors.
"""

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from typing_extensions import override

from rota import errors
from rota.clocks import Clocks
from rota.metadata import GroupMetadata
from rota.offsets import Offsets, completed
from rota.producer.batches import NO_OFFSET, Outcome
from rota.producer.connections import KafkaProperty, kafka_connection
from rota.producer.engine import Engine
from rota.producer.futures import SendFuture, SentMany
from rota.producer.options import FOREVER, Options, buffer_exhausted
from rota.producer.pipeline import PreparedRecord, SendPipeline
from rota.records import Headers

try:
    from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
except ImportError as error:
    raise errors.NotSupported("a Kafka address needs confluent-kafka: pip install 'rota[kafka]'") from error

from rota.producer.kafka_errors import error_from, error_in

POLL_S = 0.1
# Without a send for this long, the thread serves the deliveries.
IDLE_S = 0.002
# Otherwise the sending threads do, at this interval.
SENDS_PER_POLL = 128
POLL_EVERY_MS = 5
ANY_PARTITION = -1
GROUP_METADATA_MAGIC = b"CGMDv2:"
# librdkafka's purge can miss a record that is being queued to its partition, and then waits until it times
# out. A repeated abort continues where it was, and purges again.
ABORT_STEP_S = 1.0
# Brokers may not know a new topic yet.
PROPAGATION_S = 5.0
# librdkafka refuses records a moment before it reports why the producer has failed.
CAUSE_WITHIN_S = 5.0
KafkaConfig = dict[str, KafkaProperty | Callable[[KafkaError], None] | None]


class KafkaEngine(Engine):
    """A librdkafka producer, and the thread that serves its delivery callbacks."""

    def __init__(self, address: str, options: Options, clocks: Clocks, pipeline: SendPipeline) -> None:
        self._address = address
        self._options = options
        self._clocks = clocks
        self._max_block_s = options.max_block_ms / 1000
        self._on_batch = pipeline.batch_callback()
        self._partitions: dict[str, tuple[int, float]] = {}
        self._work = threading.Event()
        # Per thread: True inside a call that runs callbacks.
        self._here = threading.local()
        self._sent = 0
        self._poll_at_ms = 0
        self._fatal: errors.RotaError | None = None
        self._closed = threading.Event()
        self._in_transaction = False
        try:
            self._producer = Producer(config_of(address, options, self._on_error))
        except KafkaException as error:
            raise error_in(error, "the settings of the producer") from error
        self._thread = threading.Thread(target=self._deliver, name="rota-kafka", daemon=True)
        self._thread.start()

    def _deliver(self) -> None:
        seen = -1
        while not self._closed.is_set():
            if not len(self._producer):
                # The callback also gets connection errors.
                self._work.wait(POLL_S)
                self._work.clear()
                self._poll(0)
            elif seen == self._sent:
                self._poll(IDLE_S)
            else:
                # Sending threads also poll: switching the interpreter for each delivery would slow both
                # threads down.
                seen = self._sent
                self._closed.wait(IDLE_S)
        self._poll(0)

    def _poll(self, within_s: float) -> None:
        # Not from a callback: it would recurse.
        if self._in_callback():
            return
        try:
            with self._running_callbacks():
                self._producer.poll(within_s)
        except KafkaException as error:
            # Fatal error of the producer, which the next call raises.
            self._error(error, self._address)

    @contextmanager
    def _running_callbacks(self) -> Iterator[None]:
        """Mark this thread as one that may run callbacks; refuse nested calls."""
        if self._in_callback():
            raise errors.blocking_call_in_callback()
        self._here.polls = True
        try:
            yield
        finally:
            self._here.polls = False

    def _in_callback(self) -> bool:
        return getattr(self._here, "polls", False)

    def _on_error(self, error: KafkaError) -> None:
        self._keep(error, error_from(error, self._address))

    def _error(self, exception: KafkaException, where: str) -> errors.RotaError:
        error: KafkaError = exception.args[0]
        found = error_from(error, where)
        self._keep(error, found)
        return found

    def _keep(self, error: KafkaError, found: errors.RotaError) -> None:
        """Keep the first fatal error; `_FATAL` itself says no cause."""
        if found.fatal and self._fatal is None and error.code() != KafkaError._FATAL:
            self._fatal = found

    def _check_usable(self) -> None:
        if self._closed.is_set():
            raise errors.ProducerClosed("the producer is closed: create a new one")
        if self._fatal is not None:
            dead = type(self._fatal).with_message(
                f"the producer has failed and must be closed: {self._fatal}"
            )
            dead.fatal = True
            raise dead

    # Records

    @override
    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> SendFuture:
        return SendFuture(self._put(PreparedRecord(topic, value, key, partition, timestamp_ms, headers)), 0)

    @override
    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> tuple[Outcome, int]:
        return self._put(PreparedRecord(topic, value, key, partition, timestamp_ms, headers)), 0

    def _put(self, record: PreparedRecord) -> Outcome:
        self._check_usable()
        timestamp_ms = self._clocks.wall_ms() if record.timestamp_ms is None else record.timestamp_ms
        # librdkafka batches by itself, and reports each record.
        partition = ANY_PARTITION if record.partition is None else record.partition
        outcome = Outcome(record.topic, partition, [timestamp_ms])
        if self._on_batch is not None:
            outcome.when_done(self._on_batch)
        try:
            self._produce(record, outcome)
        except BufferError:
            self._produce_when_possible(record, outcome)
        self._sent += 1
        if self._sent % SENDS_PER_POLL == 0 or timestamp_ms >= self._poll_at_ms:
            self._poll_at_ms = timestamp_ms + POLL_EVERY_MS
            self._poll(0)
        elif not self._work.is_set():
            self._work.set()
        return outcome

    def _produce(self, record: PreparedRecord, outcome: Outcome) -> None:
        try:
            self._producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                partition=outcome.partition,
                on_delivery=partial(self._delivered, outcome),
                timestamp=outcome.timestamps_ms[0],
                headers=list(record.headers) if record.headers else None,
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                self._poll_for_cause()
                self._check_usable()
            raise self._error(error, record.topic) from error

    def _poll_for_cause(self) -> None:
        """Return once the cause of a fatal error is known; in a callback, which cannot poll, at once."""
        deadline_s = self._clocks.monotonic_s() + CAUSE_WITHIN_S
        while self._fatal is None and not self._in_callback() and self._clocks.monotonic_s() < deadline_s:
            self._poll(IDLE_S)

    def _produce_when_possible(self, record: PreparedRecord, outcome: Outcome) -> None:
        """Queue a record; while librdkafka's queue is full, serve deliveries until there is room."""
        if self._in_callback():
            raise buffer_exhausted(0)
        deadline_s = self._clocks.monotonic_s() + self._max_block_s
        while self._clocks.monotonic_s() < deadline_s:
            self._poll(IDLE_S)
            with suppress(BufferError):
                self._produce(record, outcome)
                return
        raise buffer_exhausted(self._max_block_s)

    def _delivered(self, outcome: Outcome, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        outcome.partition = outcome.partition if partition is None else partition
        if error is None:
            offset = message.offset()
            outcome.complete(NO_OFFSET if offset is None or offset < 0 else offset)
            return
        found = error_from(error, f"{outcome.topic}[{outcome.partition}]")
        self._keep(error, found)
        outcome.complete(NO_OFFSET, found)

    @override
    def send_many(
        self, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
    ) -> SentMany:
        each_key = keys if keys is not None else [None] * len(values)
        records = (
            PreparedRecord(topic, value, key, None, None, None)
            for value, key in zip(values, each_key, strict=True)
        )
        return SentMany(
            len(values), [(self._put(record), 0, (position,)) for position, record in enumerate(records)]
        )

    @override
    def partitions_for(self, topic: str) -> int:
        now_s = self._clocks.monotonic_s()
        known, until_s = self._partitions.get(topic, (0, now_s))
        if now_s < until_s:
            return known
        until_s = now_s + min(PROPAGATION_S, self._max_block_s)
        count: int | None = None
        while count is None:
            try:
                count = self._count(topic)
            except errors.RotaError as error:
                passing = error.retriable or isinstance(error, errors.UnknownTopicOrPartition)
                if not passing or self._clocks.monotonic_s() >= until_s:
                    raise
                self._closed.wait(POLL_S)
        self._partitions[topic] = (count, now_s + self._options.metadata_max_age_ms / 1000)
        return count

    def _count(self, topic: str) -> int:
        try:
            found = self._producer.list_topics(topic, timeout=self._max_block_s).topics[topic]
        except KafkaException as error:
            raise self._error(error, topic) from error
        if found.error is not None:
            raise error_from(found.error, topic)
        return len(found.partitions)

    @override
    def flush(self, timeout_s: float | None) -> None:
        try:
            with self._running_callbacks():
                left = self._producer.flush(-1 if timeout_s is None else timeout_s)
        except KafkaException as error:
            raise self._error(error, "flush") from error
        if left:
            raise errors.TimedOut(
                f"{left} records are not sent after {timeout_s} s: flush again to wait longer"
            )

    @override
    def close(self, timeout_s: float | None) -> None:
        try:
            if self._fatal is None:
                if self._in_transaction:
                    self.abort()
                self.flush(timeout_s)
        finally:
            # Remaining records fail, and so do their futures: the thread polls once more when it ends.
            self._producer.purge()
            self._closed.set()
            self._thread.join()
            # librdkafka's threads and connections end with the object, which our callbacks would keep alive
            # until the next garbage collection of cycles; its own `close` waits for brokers that are gone.
            del self._producer

    # Transactions

    @override
    def init_transactions(self) -> None:
        self._do("init_transactions", lambda: self._producer.init_transactions(self._max_block_s))

    @override
    def begin(self) -> None:
        self._do("begin_transaction", self._producer.begin_transaction)
        self._in_transaction = True

    @override
    def commit(self) -> None:
        try:
            self._do("commit_transaction", lambda: self._producer.commit_transaction(self._max_block_s))
            self._in_transaction = False
        except errors.RotaError as error:
            if error.retriable:
                message = f"the outcome of the commit is unknown ({error}): commit again"
                raise errors.UndecidedCommit(message) from error
            raise

    @override
    def abort(self) -> None:
        self._do("abort_transaction", self._abort_in_steps)
        self._in_transaction = False

    def _abort_in_steps(self) -> None:
        until_s = self._clocks.monotonic_s() + self._max_block_s
        while True:
            left_s = until_s - self._clocks.monotonic_s()
            try:
                return self._producer.abort_transaction(max(min(left_s, ABORT_STEP_S), 0))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or left_s <= ABORT_STEP_S:
                    raise

    @override
    def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        if self._options.coordination == "Rota":
            raise errors.NotSupported(
                f"the offsets of {group.group_id} are with Rota's coordinator and the records are in Kafka, and no "
                "transaction spans both: let Kafka coordinate the group, or keep results and offsets in rota.stores"
            )
        positions = [
            TopicPartition(topic, partition, given.offset, metadata=given.metadata)
            for (topic, partition), offset in offsets.items()
            for given in (completed(offset),)
        ]
        self._do(
            f"the offsets of {group.group_id}",
            lambda: self._producer.send_offsets_to_transaction(
                positions, encoded_group_metadata(group), self._max_block_s
            ),
        )

    def _do(self, what: str, action: Callable[[], None]) -> None:
        self._check_usable()
        try:
            with self._running_callbacks():
                action()
        except KafkaException as error:
            raise self._error(error, what) from error


def config_of(address: str, options: Options, on_error: Callable[[KafkaError], None]) -> KafkaConfig:
    """Return the settings under librdkafka's names; the application's `kafka_config` takes precedence."""
    config: KafkaConfig = {
        **kafka_connection(options),
        "bootstrap.servers": address,
        "acks": options.acks,
        "enable.idempotence": options.idempotent,
        # Kafka's default partitioner for keys; librdkafka's default chooses other partitions.
        "partitioner": "murmur2_random",
        "batch.size": options.batch_size,
        "linger.ms": options.linger_ms,
        "queue.buffering.max.kbytes": max(options.buffer_memory // 1024, 1),
        # Bytes bound the queue, as on Rota's log.
        "queue.buffering.max.messages": 0,
        "message.max.bytes": max(options.max_request_size, 1000),
        "max.in.flight.requests.per.connection": min(options.max_in_flight_requests_per_connection, 5),
        "message.send.max.retries": int(min(options.retries, FOREVER)),
        "retry.backoff.ms": int(options.retry_backoff_ms),
        "retry.backoff.max.ms": int(options.retry_backoff_max_ms),
        "request.timeout.ms": int(options.request_timeout_ms),
        "delivery.timeout.ms": int(options.delivery_timeout_ms),
        "metadata.max.age.ms": int(options.metadata_max_age_ms),
        "error_cb": on_error,
    }
    if options.transactional_id:
        config["transactional.id"] = options.transactional_id
        config["transaction.timeout.ms"] = options.transaction_timeout_ms
        config["delivery.timeout.ms"] = min(int(options.delivery_timeout_ms), options.transaction_timeout_ms)
    return {**config, **options.kafka_config}


def encoded_group_metadata(group: GroupMetadata) -> bytes:
    """
    Encode a member as librdkafka encodes its own, for `send_offsets_to_transaction`, which takes these bytes as opaque.

    The layout is private to librdkafka; a test compares it with what the installed version's consumer gives:
    "CGMDv2:", generation (int32 of this machine), group id, 0, member id, 0, then one byte 1 without instance id, else 0,
    the instance id, 0.
    """
    instance = b"\1" if group.group_instance_id is None else b"\0" + _terminated(group.group_instance_id)
    generation = struct.pack("=i", group.generation_id)
    return (
        GROUP_METADATA_MAGIC
        + generation
        + _terminated(group.group_id)
        + _terminated(group.member_id)
        + instance
    )


def _terminated(text: str) -> bytes:
    return text.encode() + b"\0"
