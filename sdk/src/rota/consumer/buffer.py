"""Records that wait for the application's next poll, by partition. Owned by the consumer's core."""

from collections import deque
from collections.abc import Collection, Iterator

from rota.consumer.batch_slice import BatchSlice
from rota.records import TopicPartition


class RecordBuffer:
    """Buffers slices by partition. Invariant: partitions are served round-robin, each in offset order."""

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, deque[BatchSlice]] = {}
        self.records = 0
        self.size = 0.0

    def append(self, batch_slice: BatchSlice) -> None:
        """Add the next records of a partition."""
        self._queues.setdefault(batch_slice.topic_partition, deque()).append(batch_slice)
        self._count(batch_slice, 1)

    def put_back(self, batch_slice: BatchSlice) -> None:
        """Return records to the front of their partition, and the partition to the front of the queue."""
        queue = self._queues.pop(batch_slice.topic_partition, deque())
        queue.appendleft(batch_slice)
        self._queues = {batch_slice.topic_partition: queue, **self._queues}
        self._count(batch_slice, 1)

    def take(self, records_max: int, without: Collection[TopicPartition]) -> Iterator[BatchSlice]:
        """Take the next records, at most so many, skipping the given partitions."""
        for partition in [each for each in self._queues if each not in without]:
            queue = self._queues.pop(partition)
            while queue and records_max > 0:
                batch_slice = queue.popleft()
                self._count(batch_slice, -1)
                if len(batch_slice) > records_max:
                    cut = batch_slice.base_offset + records_max
                    rest = batch_slice.between(cut, batch_slice.next_offset)
                    queue.appendleft(rest)
                    self._count(rest, 1)
                    batch_slice = batch_slice.between(batch_slice.base_offset, cut)
                records_max -= len(batch_slice)
                yield batch_slice
            if queue:
                self._queues[partition] = queue
            if records_max <= 0:
                return

    def drop(self, partition: TopicPartition, delivery_epoch: int | None = None) -> None:
        """Drop the records of a partition; with a delivery epoch only those of that epoch and earlier ones."""
        queue = self._queues.pop(partition, deque())
        stay = deque(
            each for each in queue if delivery_epoch is not None and each.delivery_epoch > delivery_epoch
        )
        for batch_slice in queue:
            self._count(batch_slice, -1)
        if stay:
            self._queues[partition] = stay
        for batch_slice in stay:
            self._count(batch_slice, 1)

    def first_offset(self, partition: TopicPartition) -> int | None:
        """Return the first buffered offset of a partition; None if nothing is buffered."""
        queue = self._queues.get(partition)
        return queue[0].base_offset if queue else None

    def _count(self, batch_slice: BatchSlice, sign: int) -> None:
        self.records += sign * len(batch_slice)
        self.size += sign * batch_slice.size
