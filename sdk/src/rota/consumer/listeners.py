"""Callbacks of a consumer: rebalance listeners and interceptors."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from rota.offsets import OffsetAndMetadata
from rota.records import Record, TopicPartition

Partitions = Sequence[TopicPartition]


class RebalanceListener:
    """
    Callbacks for assigned and revoked partitions, in the thread that polls. Override what you need.

    All revocations of a rebalance are reported before its assignments. A method that raises is called again by the next
    poll, and the rebalance waits until it returns; revoked partitions are taken away at the deadline. A loss is reported
    once.

    >>> class Rewind(rota.RebalanceListener):                           # doctest: +SKIP
    ...     def on_partitions_assigned(self, partitions):
    ...         consumer.seek_to_beginning(*partitions)
    >>> consumer.subscribe(["orders"], listener=Rewind())               # doctest: +SKIP
    """

    def on_partitions_assigned(self, partitions: Partitions) -> None:
        """Called with new partitions, maybe none, before any of their records is returned; seek here."""

    def on_partitions_revoked(self, partitions: Partitions) -> None:
        """Called before these partitions move to another member: the last opportunity to commit their offsets."""

    def on_partitions_lost(self, partitions: Partitions) -> None:
        """
        Called for partitions that another member may already own: their offsets cannot be committed.

        The default calls `on_partitions_revoked`, as in Kafka's consumer.
        """
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener(Protocol):
    """Rebalance listener of `rota.AsyncConsumer`: any of its methods may be asynchronous."""

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called with new partitions, before any of their records is returned."""
        ...

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called before these partitions move to another member."""
        ...

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called for partitions that another member may already own."""
        ...


Polled = Mapping[TopicPartition, Sequence[Record[Any, Any]]]


class ConsumerInterceptor:
    """
    Observes or changes the records that a consumer returns, and observes its commits. Override what you need.

    What its methods raise is logged and ignored; only what `configure` raises ends the constructor.
    """

    def configure(self, settings: Mapping[str, object]) -> None:
        """Called once, with all settings of the consumer, before its first record."""

    def on_consume(self, records: Polled) -> Polled:
        """Return the records that `poll` returns instead."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """
        Called with the offsets of each commit, also of the sidecar's automatic ones, in a later call of the consumer.

        Of a commit by the consumer's own `close` it is called before that returns.
        """

    def close(self) -> None:
        """Called when the consumer is closed, after its last commit."""
