"""
Recording of one group over the last 15 minutes, and what a reader of it has not seen yet.

`DashboardState` records each group's view about once a second; the page sends each browser everything once, then what is new.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_operator.overview.ownership import OWNERS_MAX, MemberSigns, OwnerChange, Ownership
from rota_operator.overview.samples import PARTITIONS_MAX, Sample, Samples
from rota_operator.overview.view import GroupView


@dataclass(frozen=True, slots=True)
class Cursor:
    """Numbers of the last sample and the last change of owners that a reader has; None: it has none."""

    sample: int | None = None
    change: int | None = None


START = Cursor()


@dataclass(frozen=True, slots=True)
class RecordingDelta:
    """Part of a recording: everything after a cursor."""

    group_id: str
    # Everything that is recorded: the reader drops what it has.
    is_complete: bool
    # Oldest first.
    samples: tuple[Sample, ...]
    changes: tuple[OwnerChange, ...]
    # Numbers of all members of the window, by name; members over the bound have none.
    signs: Mapping[str, int]
    # The reader passes this one next.
    cursor: Cursor


class GroupRecording:
    """Recording of one group; bounded as its parts are. Times are wall-clock milliseconds, passed in by the caller."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._samples = Samples()
        self._ownership = Ownership()
        self._signs = MemberSigns()

    def record(
        self,
        view: GroupView,
        at_ms: int,
        partitions_max: int = PARTITIONS_MAX,
        owners_max: int = OWNERS_MAX,
    ) -> None:
        """Record the group's state at `at_ms`, with lag and throughput of at most so many partitions, and so many changed owners."""
        self._samples.add(view, at_ms, partitions_max)
        self._ownership.record(view, at_ms, owners_max)
        self._signs.update([*(each.name for each in view.members), *sorted(self._ownership.members)])

    @property
    def changed_owners(self) -> int:
        """Number of owners in the recorded changes."""
        return self._ownership.size

    def since(self, cursor: Cursor) -> RecordingDelta:
        """Return what was recorded after the cursor; everything after START."""
        samples = tuple(self._samples.since(cursor.sample))
        changes = tuple(self._ownership.since(cursor.change))
        return RecordingDelta(
            group_id=self._group_id,
            is_complete=cursor == START,
            samples=samples,
            changes=changes,
            signs=self._signs.numbers,
            cursor=Cursor(
                samples[-1].number if samples else cursor.sample,
                changes[-1].number if changes else cursor.change,
            ),
        )
