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
    """State of one partition, for metrics and Fleet."""

    tenure: Tenure
    # Offset of the next record that is dispatched for the first time; None: the initial position is unknown.
    position: int | None
    # None: nothing is committed, as far as is known.
    committed: int | None
    bounds: Bounds | None
    # Number of records in flight, and of fetched records that are not.
    in_flight: int
    waiting: int
    # First record without a final verdict: its batch and offset; None: it was not fetched.
    first_unresolved: tuple[Batch, int] | None
    # Timestamp in ms of that record, as reported by an application that fetches records itself.
    reported_ms: int | None
    # Message why the partition makes no progress; empty: it does.
    stopped: str
    # Message about the present problem, also a transient one; empty: none.
    problem: str


def paused(core: Core) -> frozenset[Partition]:
    """Return the partitions that the application paused."""
    return frozenset(
        partition for partition, partition_state in core.partition_states.items() if partition_state.paused
    )


def positions(core: Core) -> Mapping[Partition, int]:
    """
    Return the application's position in each partition: the offset of the first record without a verdict.

    Dispatched records may still be on their way to the application when it receives this position.
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
    """Return a view of each partition."""
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
        reported_ms=_reported_ms(partition_state),
        stopped=_stopped(partition_state),
        problem=_problem(partition_state),
    )


def _reported_ms(partition_state: PartitionState) -> int | None:
    """Return the reported timestamp; a position that has moved since, by a commit for example, makes it void."""
    time = partition_state.reported_time
    return time.timestamp_ms if time is not None and time.offset == _position(partition_state) else None


def _problem(partition_state: PartitionState) -> str:
    """Return the most fundamental problem: without a position nothing is fetched, and without a fetch nothing is committed."""
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
