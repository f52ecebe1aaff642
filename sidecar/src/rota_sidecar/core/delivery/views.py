"""What can be seen of deliveries from outside; nothing here changes anything."""

from collections.abc import Mapping
from typing import NamedTuple

from rota_sidecar.core.delivery.core import Core
from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.delivery.partition import (
    Book,
    Finding,
    LettingGo,
    LookingUp,
    Place,
    Running,
    Stopped,
    Subject,
)
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Partition, Tenure


class PartitionView(NamedTuple):
    """One partition, for metrics and Fleet."""

    tenure: Tenure
    # The next offset that is handed out; None = where it begins is being found out.
    position: int | None
    # None = nothing is, as far as is known.
    committed: int | None
    bounds: Bounds | None
    in_flight: int
    # Read, and not in hand.
    waiting: int
    # The record at the commit position, in its batch, where it was read.
    first_unresolved: tuple[Batch, int] | None
    # What an application said of that record that reads by itself.
    reported_ms: int | None
    # Why it stands still: a sentence, or nothing.
    stopped: str
    # What is wrong with it now, also what may pass by itself: a sentence, or nothing.
    problem: str


def paused(core: Core) -> frozenset[Partition]:
    """What was paused."""
    return frozenset(partition for partition, place in core.places.items() if place.paused)


def positions(core: Core) -> Mapping[Partition, int]:
    """
    The next offset that an application returns which has returned none yet: of the first record without a verdict.

    Records that were dispatched may still be on their way to it, behind the answer that has this position.
    """
    return {
        partition: _undone(place.book.ledger)
        for partition, place in core.places.items()
        if place.book is not None
    }


def _undone(ledger: Ledger) -> int:
    unresolved = ledger.first_unresolved
    return ledger.dispatch_position if unresolved is None else min(unresolved[1], ledger.dispatch_position)


def _position(place: Place) -> int | None:
    return None if place.book is None else place.book.ledger.dispatch_position


def partitions(core: Core) -> Mapping[Partition, PartitionView]:
    """Everything."""
    return {partition: _view(place) for partition, place in core.places.items()}


def _view(place: Place) -> PartitionView:
    ledger = None if place.book is None else place.book.ledger
    return PartitionView(
        tenure=place.tenure,
        position=_position(place),
        committed=place.committed,
        bounds=place.bounds,
        in_flight=0 if ledger is None else ledger.in_flight,
        waiting=0 if ledger is None else ledger.waiting,
        first_unresolved=None if ledger is None else ledger.first_unresolved,
        # Else it has come further since, by a commit, or as another application.
        reported_ms=place.reported_ms if place.reported == _position(place) else None,
        stopped=_stopped(place),
        problem=_problem(place),
    )


def _problem(place: Place) -> str:
    """The most basic one: without a position nothing is read, what is not read is not committed."""
    return next((place.said[each].sentence for each in Subject if each in place.said), "")


def _stopped(place: Place) -> str:
    match place.state:
        case Stopped(sentence=sentence):
            return sentence
        case Running(book) | LettingGo(book=Book() as book):
            return book.ledger.stopped or book.unreadable
        case Finding() | LookingUp() | LettingGo():
            return ""
