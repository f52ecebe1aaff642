"""Callbacks of a consumer: rebalance listeners and interceptors."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from rota.offsets import OffsetAndMetadata
from rota.records import Record, TopicPartition

Partitions = Sequence[TopicPartition]


class RebalanceListener:
    """
    Hears, in the thread that polls, which partitions come and go. Override what you need.

    All revocations of a rebalance are told before anything that it assigns. A method that raises is called again by the
    next poll, and until then nothing goes on; what was to be let go is taken at the deadline. What is lost is told once.

    >>> class Rewind(rota.RebalanceListener):                           # doctest: +SKIP
    ...     def on_partitions_assigned(self, partitions):
    ...         consumer.seek_to_beginning(*partitions)
    >>> consumer.subscribe(["orders"], listener=Rewind())               # doctest: +SKIP
    """

    def on_partitions_assigned(self, partitions: Partitions) -> None:
        """Called with new partitions, maybe none, before any of their records is returned: the place to seek."""

    def on_partitions_revoked(self, partitions: Partitions) -> None:
        """Called before these partitions move to another member: the last moment to commit their offsets."""

    def on_partitions_lost(self, partitions: Partitions) -> None:
        """
        Called for partitions that another member may already own: their offsets cannot be committed.

        Calls `on_partitions_revoked` unless you override it, as Kafka's does.
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
    """Sees what a consumer returns and commits. What it raises is logged, and changes nothing."""

    def on_consume(self, records: Polled) -> Polled:
        """The records to return from `poll` instead."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The consumer has committed this. What the sidecar commits by itself, every interval, is not told."""
