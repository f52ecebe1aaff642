"""Interceptors of a producer: the base class, called by `pipeline.py` in the order in which they are given."""

from collections.abc import Mapping

from rota import errors
from rota.records import OutgoingRecord, RecordMetadata


class ProducerInterceptor:
    """
    Observes or changes every record of a producer, and observes its outcome. Override what you need; no method may block.

    What `on_send`, `on_acknowledgement` and `close` raise is logged and ignored, as in Kafka's producer.

    >>> class Stamping(rota.ProducerInterceptor):                           # doctest: +SKIP
    ...     def on_send(self, record):
    ...         return dataclasses.replace(record, headers=[("stamp", b"1")])
    """

    def configure(self, settings: Mapping[str, object]) -> None:
        """Called once, with all settings of the producer, before its first record. What it raises ends the constructor."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record to send instead; called in the thread that sends, before serializers and partitioner."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: errors.RotaError | None) -> None:
        """
        Called when a record is sent or has failed, once for each `on_send`.

        In the producer's thread; or in the thread that sends, for a record that failed before it was queued: offset -1, and
        partition -1 if none was given.
        """

    def close(self) -> None:
        """Called when the producer is closed, after the outcomes of all records."""
