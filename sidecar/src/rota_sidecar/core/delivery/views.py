"""Read-only views of the delivery core."""

from collections.abc import Mapping
from typing import NamedTuple

from rota_sidecar.core.delivery.core import Core
from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.delivery.partition import (
    FetchingCommitted,
    FetchSession,
    PartitionState,
    ResolvingOffset,
    Revoking,
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
    return frozenset(
        partition for partition, partition_state in core.partition_states.items() if partition_state.paused
    )


def positions(core: Core) -> Mapping[Partition, int]:
    """
    The next offset that an application returns which has returned none yet: of the first record without a verdict.

    Records that were dispatched may still be on their way to it, behind the answer that has this position.
    """
    return {
        partition: _undone(partition_state.fetch_session.ledger)
        for partition, partition_state in core.partition_states.items()
        if partition_state.fetch_session is not None
    }


def _undone(ledger: Ledger) -> int:
    unresolved = ledger.first_unresolved
    return ledger.dispatch_position if unresolved is None else min(unresolved[1], ledger.dispatch_position)


def _position(partition_state: PartitionState) -> int | None:
    return (
        None
        if partition_state.fetch_session is None
        else partition_state.fetch_session.ledger.dispatch_position
    )


def partitions(core: Core) -> Mapping[Partition, PartitionView]:
    """Everything."""
    return {partition: _view(partition_state) for partition, partition_state in core.partition_states.items()}


def _view(partition_state: PartitionState) -> PartitionView:
    ledger = None if partition_state.fetch_session is None else partition_state.fetch_session.ledger
    return PartitionView(
        tenure=partition_state.tenure,
        position=_position(partition_state),
        committed=partition_state.committed,
        bounds=partition_state.bounds,
        in_flight=0 if ledger is None else ledger.in_flight,
        waiting=0 if ledger is None else ledger.waiting,
        first_unresolved=None if ledger is None else ledger.first_unresolved,
        # Else it has come further since, by a commit, or as another application.
        reported_ms=partition_state.reported_ms
        if partition_state.reported == _position(partition_state)
        else None,
        stopped=_stopped(partition_state),
        problem=_problem(partition_state),
    )


def _problem(partition_state: PartitionState) -> str:
    """The most basic one: without a position nothing is read, what is not read is not committed."""
    return next(
        (partition_state.problems[each].message for each in Subject if each in partition_state.problems), ""
    )


def _stopped(partition_state: PartitionState) -> str:
    match partition_state.state:
        case Stopped(message=message):
            return message
        case Running(fetch_session) | Revoking(fetch_session=FetchSession() as fetch_session):
            return fetch_session.ledger.stopped or fetch_session.unreadable
        case FetchingCommitted() | ResolvingOffset() | Revoking():
            return ""
