"""
Prepares records for sending: interceptors, serializers, the application's partitioner; then reports their outcomes.

Each record that passed `intercept` is reported to the interceptors once: by `report`, or by `report_unsent` if it was not queued.

Used by both producers, whatever the engine. A producer without any of these skips all of it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rota import errors
from rota.producer.batches import NO_OFFSET, Outcome
from rota.producer.futures import call_guarded, metadata_of
from rota.producer.options import Options, Serializer
from rota.records import Headers, OutgoingRecord, RecordMetadata
from rota.serializers import with_topic

Bytes = bytes | None
TIMESTAMP_MAX = (1 << 63) - 1
NO_PARTITION = NO_TIMESTAMP = -1

log = logging.getLogger("rota.producer")


class PreparedRecord(NamedTuple):
    """A record as the engine takes it."""

    topic: str
    value: Bytes
    key: Bytes
    partition: int | None
    timestamp_ms: int | None
    headers: Headers | None


class SendPipeline:
    """Prepares the records of a producer, and calls the callbacks of their outcomes."""

    def __init__(self, options: Options) -> None:
        self._interceptors = tuple(options.interceptors)
        key, value = options.key_serializer, options.value_serializer
        self._key_serializer = None if key is None else with_topic(key)
        self._value_serializer = None if value is None else with_topic(value)
        self._partitioner = options.partitioner
        self._on_delivery = options.on_delivery
        # True if `prepare` does more than validate.
        self.is_needed = bool(
            self._interceptors or self._key_serializer or self._value_serializer or self._partitioner
        )

    def configure(self, settings: Mapping[str, object]) -> None:
        """Configure the interceptors; raises what they raise."""
        for interceptor in self._interceptors:
            interceptor.configure(settings)

    def close(self) -> None:
        """Close the interceptors."""
        for interceptor in self._interceptors:
            call_guarded(interceptor.close)

    def prepare(self, record: OutgoingRecord, partitions: Callable[[str], int]) -> PreparedRecord:
        """Prepare a record: interceptors, serializers, partitioner. `partitions` returns the number of a topic's partitions."""
        return self.serialize(self.intercept(record), partitions)

    def intercept(self, record: OutgoingRecord) -> OutgoingRecord:
        """Pass a record through the interceptors; one that raises is logged and skipped."""
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:
                log.exception("an interceptor raised; the record is sent unchanged")
        return record

    def serialize(self, record: OutgoingRecord, partitions: Callable[[str], int]) -> PreparedRecord:
        """Serialize a record and choose its partition; a failure is reported to the interceptors, and raised."""
        try:
            topic = record.topic
            key = serialized(self._key_serializer, topic, record.key, "key")
            value = serialized(self._value_serializer, topic, record.value, "value")
            partition = record.partition
            if partition is None and self._partitioner is not None:
                partition = self._partitioner(topic, key, value, partitions(topic))
            check(None, None, record.timestamp_ms, record.headers)
        except Exception as error:
            self.report_unsent(record, error)
            raise
        return PreparedRecord(topic, value, key, partition, record.timestamp_ms, record.headers)

    def report_unsent(self, record: OutgoingRecord | PreparedRecord, error: Exception) -> None:
        """Report to the interceptors that a record was not queued; its sender gets the exception itself."""
        if not isinstance(error, errors.RotaError):
            error = errors.RotaError.with_message(f"{type(error).__name__}: {error}")
        partition = NO_PARTITION if record.partition is None else record.partition
        timestamp_ms = NO_TIMESTAMP if record.timestamp_ms is None else record.timestamp_ms
        metadata = RecordMetadata(record.topic, partition, NO_OFFSET, timestamp_ms)
        for interceptor in self._interceptors:
            call_guarded(interceptor.on_acknowledgement, metadata, error)

    def batch_callback(self) -> Callable[[Outcome], None] | None:
        """Return the callback for completed batches; None if no interceptor or `on_delivery` is set."""
        if self._on_delivery is None and not self._interceptors:
            return None
        return self._report_batch

    def _report_batch(self, batch: Outcome) -> None:
        for index in range(len(batch.timestamps_ms)):
            self.report(metadata_of(batch, index), batch.error)

    def report(self, metadata: RecordMetadata, error: errors.RotaError | None) -> None:
        """Report the outcome of one record to interceptors and `on_delivery`."""
        for interceptor in self._interceptors:
            call_guarded(interceptor.on_acknowledgement, metadata, error)
        if self._on_delivery is not None:
            call_guarded(self._on_delivery, metadata, error)


def check(value: object, key: object, timestamp_ms: int | None, headers: Headers | None) -> None:
    """Raise InvalidArgument for a record that no engine can send, in the application's own call."""
    as_bytes(value, "value")
    as_bytes(key, "key")
    if timestamp_ms is not None and not 0 <= timestamp_ms <= TIMESTAMP_MAX:
        raise errors.InvalidArgument(f"timestamp_ms is {timestamp_ms}: use milliseconds since 1970")
    for header in headers or ():
        name, content = map(type, header)
        if name is not str or content not in (bytes, type(None)):
            raise errors.InvalidArgument(f"a header is a str name with bytes or None, got {header!r}")


def as_bytes(given: object, what: str) -> Bytes:
    """Return bytes or None unchanged; InvalidArgument for other types."""
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise errors.InvalidArgument(
        f"the {what} is of type {type(given).__name__}: pass bytes or None, or set {what}_serializer"
    )


def serialized(serializer: Serializer | None, topic: str, given: object, what: str) -> Bytes:
    """Serialize a key or value; SerializationFailed if the serializer raises."""
    if serializer is None:
        return as_bytes(given, what)
    try:
        made = serializer(topic, given)
    except Exception as error:
        raise errors.SerializationFailed(
            f"{what}_serializer failed on a record for {topic}: {error}"
        ) from error
    return as_bytes(made, what)


def all_bytes(column: Sequence[object]) -> bool:
    """Return whether a column holds bytes and None only."""
    return set(map(type, column)) <= {bytes, type(None)}
