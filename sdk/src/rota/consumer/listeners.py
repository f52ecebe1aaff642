"""Whom a consumer tells what happens: listeners of rebalances, interceptors."""

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
        """These are the consumer's own from now on, maybe none. The place to seek: no record of them was read yet."""

    def on_partitions_revoked(self, partitions: Partitions) -> None:
        """These go to somebody else when this returns. The last moment to commit what was done of them."""

    def on_partitions_lost(self, partitions: Partitions) -> None:
        """
        These were taken without asking, and may be somebody else's already: nothing can be committed for them.

        Calls `on_partitions_revoked` unless you override it, as Kafka's does.
        """
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener(Protocol):
    """The same for `rota.AsyncConsumer`: any of its methods may be asynchronous."""

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are the consumer's own from now on."""
        ...

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """These go to somebody else when this is over."""
        ...

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """These were taken without asking."""
        ...


Polled = Mapping[TopicPartition, Sequence[Record[Any, Any]]]


class ConsumerInterceptor:
    """Sees what a consumer returns and commits. What it raises is logged, and changes nothing."""

    def on_consume(self, records: Polled) -> Polled:
        """The records to return from `poll` instead."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The consumer has committed this. What the sidecar commits by itself, every interval, is not told."""
