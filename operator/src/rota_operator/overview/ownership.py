"""
Owners of one group's partitions over the last WINDOW_MS: a log of changes, for a timeline.

The shell records the group's view after each description and about once a second. Readers get the owners at the beginning and all
changes first, and then the changes after the last one that they have.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota_operator.overview.description import UNKNOWN
from rota_operator.overview.samples import PARTITIONS_MAX, WINDOW_MS, name_of
from rota_operator.overview.view import GroupView, PartitionView

# With more changes, or owners in them, what came before the first one kept is unknown.
CHANGES_MAX = 500
OWNERS_MAX = 50_000
MEMBERS_MAX = 1_000
UNOWNED = ""
# A member's name, or UNOWNED; None is unknown.
Owner = str | None


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """Partitions that have another owner from a time on."""

    # Rises by one with each change of the group.
    number: int
    at_ms: int
    # By name, TOPIC-NUMBER.
    owners: Mapping[str, Owner]


class Ownership:
    """
    Owners at any time of the window; the first PARTITIONS_MAX partitions of the view are recorded.

    Invariant: at most CHANGES_MAX changes, whose times do not fall and which have `size` owners; `_now` has the known owners after the last.
    """

    def __init__(self) -> None:
        self._changes: deque[OwnerChange] = deque()
        self._now: dict[str, Owner] = {}
        self._next_number = 0
        self._size = 0
        # Every owner of the window; None after a change.
        self._members: frozenset[str] | None = frozenset()

    def record(self, view: GroupView, at_ms: int, owners_max: int = OWNERS_MAX) -> None:
        """Record the owners at `at_ms`, in changes of at most so many owners; a clock that was set back takes later changes away."""
        if self._changes and self._changes[-1].at_ms > at_ms:
            self._forget_after(at_ms)
        shown = {name_of(each): owner_of(each, view) for each in view.partitions[:PARTITIONS_MAX]}
        changed: dict[str, Owner] = {
            name: owner for name, owner in shown.items() if self._now.get(name) != owner
        }
        # Partitions that are not listed any more.
        changed |= {name: None for name in self._now if name not in shown}
        if changed:
            self._append(at_ms, changed)
        while len(self._changes) > 1 and (
            self._changes[1].at_ms <= at_ms - WINDOW_MS or self._size > owners_max
        ):
            self._fold_first()

    @property
    def size(self) -> int:
        """Number of owners in all changes, which is what the memory is for."""
        return self._size

    def since(self, number: int | None) -> Sequence[OwnerChange]:
        """Return the changes after the one of this number, oldest first; None: all, and the first one has all owners of its time."""
        return tuple(each for each in self._changes if number is None or each.number > number)

    @property
    def members(self) -> frozenset[str]:
        """Every owner of the window."""
        if self._members is None:
            owners = (owner for change in self._changes for owner in change.owners.values())
            self._members = frozenset(owner for owner in owners if owner)
        return self._members

    def _append(self, at_ms: int, changed: Mapping[str, Owner]) -> None:
        self._members = None
        self._changes.append(OwnerChange(self._next_number, at_ms, changed))
        self._size += len(changed)
        self._next_number += 1
        self._now = known({**self._now, **changed})
        if len(self._changes) > CHANGES_MAX:
            self._fold_first()

    def _fold_first(self) -> None:
        """Make the second change the first one, with all owners of its time."""
        self._members = None
        first, second = self._changes.popleft(), self._changes.popleft()
        owners = known({**first.owners, **second.owners})
        self._changes.appendleft(OwnerChange(second.number, second.at_ms, owners))
        self._size += len(owners) - len(first.owners) - len(second.owners)

    def _forget_after(self, at_ms: int) -> None:
        self._members = None
        self._changes = deque(each for each in self._changes if each.at_ms <= at_ms)
        self._size = sum(len(each.owners) for each in self._changes)
        self._now = {}
        for each in self._changes:
            self._now = known({**self._now, **each.owners})


class MemberSigns:
    """
    Numbers of members, by which readers choose their letters and colours.

    Invariant: at most MEMBERS_MAX members, each with a number of its own, which stays the same while the member is known.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def update(self, names: Sequence[str]) -> None:
        """Give each member the lowest free number; members that are not among the names lose theirs."""
        wanted = set(names)
        self._numbers = {name: number for name, number in self._numbers.items() if name in wanted}
        free = set(range(MEMBERS_MAX)) - set(self._numbers.values())
        for name in names:
            if name not in self._numbers and free:
                self._numbers[name] = min(free)
                free.remove(self._numbers[name])

    @property
    def numbers(self) -> Mapping[str, int]:
        """Numbers by member name."""
        return self._numbers


def owner_of(partition: PartitionView, view: GroupView) -> Owner:
    """Return the owner of a partition; while the group's state is unknown, no owner means an unknown one."""
    if partition.owner is not None:
        return partition.owner
    return None if view.state == UNKNOWN else UNOWNED


def known(owners: Mapping[str, Owner]) -> dict[str, Owner]:
    """Return the partitions whose owner is known."""
    return {name: owner for name, owner in owners.items() if owner is not None}
