"""The records of a partition in the world of tests, and what the group knows of them."""

from dataclasses import dataclass, field

from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition


@dataclass
class Log:
    """A partition's records, and what the group knows of them."""

    start: int = 0
    end: int = 0
    stored: on.Stored = field(default_factory=lambda: on.Stored(-1, ""))
    # Whatever is committed or begun lies at or before the first record that is not among these.
    done: set[int] = field(default_factory=set)
    # What the commit that was read last said to be done beyond it; None: the next ledger goes on where one stands.
    found: set[int] | None = None
    # These have verdicts, and a ledger that goes on for another one need not know of them.
    may_come_again: set[int] = field(default_factory=set)
    # It was sought, and that is not committed: another tenure knows nothing of it.
    is_sought: bool = False
    # What somebody wanted to have committed, whatever has verdicts.
    wanted: set[int] = field(default_factory=set)

    @property
    def first_undone(self) -> int:
        return next((offset for offset in range(self.start, self.end) if offset not in self.done), self.end)

    def begin_tenure(self) -> None:
        """The next owner knows the committed offset: not an uncommitted seek, but a reset of unknown outcome."""
        if self.is_sought or self.stored.offset in self.wanted:
            self.is_sought = False
            self.done |= set(range(self.stored.offset))

    def begin_ledger(self, offset: int) -> None:
        """From here on, with what is known to be done beyond."""
        known = {each for each in self.done if each > offset} if self.found is None else self.found
        self.may_come_again = known if self.found is None else set()
        self.found = None
        self.done = known.union(range(offset))

    def decide_below(self, offset: int) -> None:
        """The owner wants to go on there, whatever has verdicts."""
        self.done = set(range(offset))
        self.found = set()


@dataclass
class HeldRecords:
    """Records of one delivery epoch that the application holds."""

    partition: Partition
    offsets: dict[int, bytes | None] = field(default_factory=dict)
