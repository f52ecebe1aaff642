"""
Rebalance listener for a consumer with a store: on assignment raise the fence, read the position, seek there.

In this order a previous owner of a partition cannot save an offset between the two.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from rota.consumer.listeners import Partitions, RebalanceListener
from rota.metadata import GroupMetadata
from rota.records import TopicPartition
from rota.stores.batch import Tenure
from rota.stores.errors import Partition, StoreError

if TYPE_CHECKING:
    from rota.consumer.api import Consumer


class FencedStore(Protocol):
    """The part of `SqlStore` that a listener calls."""

    def assign(self, group: GroupMetadata, partitions: Iterable[Partition]) -> Tenure:
        """Raise the fence for partitions that this member received, then read their positions."""
        ...


class StoreListener(RebalanceListener):
    """
    The rebalance listener of a consumer whose offsets are in a store.

    >>> consumer = rota.Consumer(sidecar="127.0.0.1:7080", enable_auto_commit=False)     # doctest: +SKIP
    >>> listener = store.listener(consumer)                                              # doctest: +SKIP
    >>> consumer.subscribe(["orders"], listener=listener)                                # doctest: +SKIP
    >>> for partition, records in consumer.poll(timeout_ms=500).items():                 # doctest: +SKIP
    ...     with store.transaction(listener.tenure) as tx:
    ...         write(connection, records)
    ...         tx.save({partition: records[-1].offset + 1})
    """

    def __init__(self, store: FencedStore, consumer: "Consumer") -> None:
        self._store = store
        self._consumer = consumer
        self._tenure: Tenure | None = None

    @property
    def tenure(self) -> Tenure:
        """The tenure of the current generation, for `store.transaction`."""
        if self._tenure is None:
            raise StoreError("no partitions were assigned to the consumer yet: poll first")
        return self._tenure

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        # All partitions, also those that were kept: the fence rises with the generation.
        self._tenure = self._store.assign(self._consumer.group_metadata(), self._consumer.assignment())
        for partition in partitions:
            position = self._tenure.positions[partition.topic, partition.partition]
            if position is not None:
                self._consumer.seek(partition, position)

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        if self._tenure is not None:
            for topic, number in map(TopicPartition._make, partitions):
                self._tenure.positions.pop((topic, number), None)
