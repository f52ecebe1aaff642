"""Queued appends and their completion; shared by the writers of the SQLite and PostgreSQL backends."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rota_coordinator.store import batches
from rota_coordinator.store.port import SlotLost
from rota_proto.coordinator.v1.records_pb2 import Record


class Append(NamedTuple):
    """An append that waits for the next transaction."""

    slot: int
    epoch: int
    data: bytes
    checksum: int
    done: "asyncio.Future[Any]"
    # True if the future's result is the sequence number of the batch.
    numbered: bool = False


def append_of(slot: int, epoch: int, records: Sequence[Record], *, numbered: bool = False) -> Append:
    """Return an append of these records; called in the event loop that waits for it."""
    return Append(slot, epoch, *batches.encode(records), asyncio.get_running_loop().create_future(), numbered)


def slot_lost(slot: int, epoch: int) -> SlotLost:
    """Return the error for an append or a release under an old epoch."""
    return SlotLost(f"slot {slot} is no longer at epoch {epoch}")


def settle(done: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    """Resolve a future, unless its waiter has cancelled it."""
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


# A future with its result or its error.
Outcome = tuple["asyncio.Future[Any]", object, Exception | None]


def settle_all(outcomes: Iterable[Outcome]) -> None:
    """Resolve many futures in one callback: waking up the event loop for each one would cost more than resolving it."""
    for done, result, error in outcomes:
        settle(done, result, error)
