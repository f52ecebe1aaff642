"""What the runtime asks of a store. A slot's records form one log, and one process at a time may append to it."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rota_proto.coordinator.v1.records_pb2 import Record


class StoreError(Exception):
    """The store could not do what was asked. Whether an append took place is then unknown."""


class SlotLost(StoreError):
    """Somebody claimed the slot later: nothing was appended, and nothing will be under this epoch."""


class Store(Protocol):
    """A durable log for each slot."""

    async def claim(self, slot: int) -> int:
        """Own the slot from now on; the epoch to append with. Whoever owned it before is fenced."""
        ...

    async def load(self, slot: int) -> Sequence[Record]:
        """All records of the slot, in the order of writing."""
        ...

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        """
        Put the records down, in the order of the calls. Done once all of them are durable; fails with SlotLost when
        the epoch is old, with StoreError when nobody knows.
        """
        ...

    async def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> None:
        """Replace the slot's log by records that say the same."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...
