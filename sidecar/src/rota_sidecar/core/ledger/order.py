"""Interface of the orderings: the next records to dispatch, and the records in flight."""

from collections.abc import Collection
from typing import Protocol

from rota_sidecar.core.ledger.runs import Run


class Order(Protocol):
    """The order of one partition. All numbers are indexes, see `record_buffer.py`; ranges end before `end`."""

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        ...

    @property
    def lanes_busy(self) -> int:
        """Return the number of records that the application may be processing at the same time."""
        ...

    @property
    def in_flight_since_ms(self) -> int | None:
        """Return the time in ms since which the application works on its oldest record; None: no record is in flight."""
        ...

    @property
    def fresh(self) -> int:
        """Return the lowest index that was never dispatched."""
        ...

    def is_fresh(self, index: int) -> bool:
        """Return True if this record was never dispatched."""
        ...

    def is_ready(self, before: int, lanes_max: int) -> bool:
        """Return True if a record before `before` may be dispatched with `lanes_max` free lanes."""
        ...

    def pick(self, before: int, records_max: int, lanes_max: int, now_ms: int) -> list[Run]:
        """Mark the next records as in flight, and return them as runs in ascending order."""
        ...

    def isolated_record(self, isolated_records: Collection[int], before: int) -> int | None:
        """Return which of these isolated records is to be dispatched now, before others are."""
        ...

    def pick_isolated(self, index: int, now_ms: int) -> None:
        """Mark this isolated record as in flight."""
        ...

    def missing(self, first: int, end: int) -> int:
        """Return the lowest index of the range that is not in flight, or `end`."""
        ...

    def leave(self, first: int, end: int, now_ms: int) -> None:
        """Mark the range as not in flight: the application has given its verdict."""
        ...

    def call_back(self, index: int) -> None:
        """Take back the records that must not overtake this one, which is delivered again; they are delivered again too."""
        ...

    def again(self, index: int) -> None:
        """Make this record ready for another delivery."""
        ...

    def finish(self, first: int, end: int) -> None:
        """Mark the range as done, and make records ready that waited for it."""
        ...

    def pass_over(self, index: int, now_ms: int) -> None:
        """Forget all records before this index: they are about to be done."""
        ...

    def maybe_started(self) -> list[int]:
        """Return the indexes that the application may have been working on, in ascending order."""
        ...

    def return_all(self) -> None:
        """Take all records back; all of them are delivered again."""
        ...
