"""Records that came and wait for the application, by partition. The consumer's core keeps one."""

from collections import deque
from collections.abc import Collection, Iterator

from rota.consumer.portions import Portion
from rota.records import TopicPartition


class Buffer:
    """Partitions take turns: whoever gave records goes to the end of the row."""

    def __init__(self) -> None:
        self._rows: dict[TopicPartition, deque[Portion]] = {}
        self.records = 0
        self.size = 0.0

    def append(self, portion: Portion) -> None:
        """These came last."""
        self._rows.setdefault(portion.place, deque()).append(portion)
        self._count(portion, 1)

    def put_back(self, portion: Portion) -> None:
        """These come first again, before those of other partitions too."""
        row = self._rows.pop(portion.place, deque())
        row.appendleft(portion)
        self._rows = {portion.place: row, **self._rows}
        self._count(portion, 1)

    def take(self, records_max: int, without: Collection[TopicPartition]) -> Iterator[Portion]:
        """The next ones, at most so many; none of those partitions."""
        for partition in [each for each in self._rows if each not in without]:
            row = self._rows.pop(partition)
            while row and records_max > 0:
                portion = row.popleft()
                self._count(portion, -1)
                if len(portion) > records_max:
                    cut = portion.base_offset + records_max
                    rest = portion.between(cut, portion.next_offset)
                    row.appendleft(rest)
                    self._count(rest, 1)
                    portion = portion.between(portion.base_offset, cut)
                records_max -= len(portion)
                yield portion
            if row:
                self._rows[partition] = row
            if records_max <= 0:
                return

    def drop(self, partition: TopicPartition, ledger: int | None = None) -> None:
        """Nothing of this partition waits any more; or nothing of this ledger and those before it."""
        row = self._rows.pop(partition, deque())
        stay = deque(each for each in row if ledger is not None and each.ledger > ledger)
        for portion in row:
            self._count(portion, -1)
        if stay:
            self._rows[partition] = stay
        for portion in stay:
            self._count(portion, 1)

    def first(self, partition: TopicPartition) -> int | None:
        """Where what waits of a partition begins."""
        row = self._rows.get(partition)
        return row[0].base_offset if row else None

    def _count(self, portion: Portion, sign: int) -> None:
        self.records += sign * len(portion)
        self.size += sign * portion.size
