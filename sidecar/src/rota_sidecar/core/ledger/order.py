"""What the orderings have in common: they say which record goes out next, and know which ones are in hand."""

from collections.abc import Collection
from typing import Protocol

from rota_sidecar.core.ledger.runs import Run


class Order(Protocol):
    """Of one partition. All numbers are places, see `shelf.py`; ranges are those before `end`."""

    @property
    def in_flight(self) -> int:
        """How many records the application has."""
        ...

    @property
    def lanes_busy(self) -> int:
        """On how many of them it may be working at the same time."""
        ...

    @property
    def in_flight_since_ms(self) -> int | None:
        """Since when it works on the same one; the longest counts."""
        ...

    @property
    def fresh(self) -> int:
        """The lowest one that was never handed out."""
        ...

    def is_fresh(self, index: int) -> bool:
        """Whether this one was never handed out."""
        ...

    def is_ready(self, before: int, lanes_max: int) -> bool:
        """Whether something may go out, with so many lanes free."""
        ...

    def pick(self, before: int, records_max: int, lanes_max: int, now_ms: int) -> list[Run]:
        """Hand these out."""
        ...

    def isolated_record(self, isolated_records: Collection[int], before: int) -> int | None:
        """Which of these is to go out now, before others do."""
        ...

    def pick_isolated(self, index: int, now_ms: int) -> None:
        """Hand that out."""
        ...

    def missing(self, first: int, end: int) -> int:
        """The lowest of these that is not in hand, or `end`."""
        ...

    def leave(self, first: int, end: int, now_ms: int) -> None:
        """These are in hand no more: the application has decided about them."""
        ...

    def call_back(self, index: int) -> None:
        """This one is to be delivered once more: what must not overtake it is in hand no more, and comes again."""
        ...

    def again(self, index: int) -> None:
        """This one may go out once more."""
        ...

    def finish(self, first: int, end: int) -> None:
        """These are done, and are in hand no more: what waited for them may go."""
        ...

    def pass_over(self, index: int, now_ms: int) -> None:
        """All before it are to be done, whatever they wait for: forget them."""
        ...

    def maybe_started(self) -> list[int]:
        """Which ones the application may have been working on."""
        ...

    def return_all(self) -> None:
        """Nothing is in hand any more, all of it comes again."""
        ...
