"""The slot table that processes share: one consistent reading of live processes and slot owners."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# Number of slots of a store that was created without another number, as Kafka's `offsets.topic.num.partitions`.
SLOTS = 50
# Each slot is claimed and loaded by itself, and a renewal on PostgreSQL reads a row of each.
SLOTS_MAX = 1_000


class Process(NamedTuple):
    """A process with a valid lease. A process that lost its lease registers again under a new id."""

    process_id: str
    # The address that members connect to, host:port.
    address: str


class Row(NamedTuple):
    """A slot. A slot without owner is not served; its named new owner, if any, claims it first."""

    slot: int
    epoch: int
    owner: str  # a process id, or empty
    new_owner: str  # a process id, or empty


@dataclass(frozen=True, slots=True)
class Table:
    """Reading of live processes and slot owners. Invariant: only processes with a valid lease own slots."""

    processes: tuple[Process, ...]
    rows: tuple[Row, ...]
    _addresses: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_addresses", dict(self.processes))

    def address_of(self, process_id: str) -> str:
        """Return the address that members connect to for a process; empty when the process is not alive."""
        return self._addresses.get(process_id, "")

    def owned_by(self, process_id: str) -> list[int]:
        """Return the slots of a process, in order."""
        return [row.slot for row in self.rows if row.owner == process_id]

    def vacant(self) -> list[Row]:
        """Return the slots without an owner, in order."""
        return [row for row in self.rows if not row.owner]


def empty_rows(slots: Iterable[int] = range(SLOTS)) -> tuple[Row, ...]:
    """Return the rows of a new table."""
    return tuple(Row(slot, epoch=0, owner="", new_owner="") for slot in slots)
