"""
Recording of one group over the last 15 minutes, and what a reader of it has not seen yet.

`DashboardState` records each group's view about once a second; the page sends each browser everything once, then what is new.
"""

from dataclasses import dataclass

from rota_operator.overview.samples import Sample, Samples
from rota_operator.overview.view import GroupView


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last sample that a reader has."""

    sample: int | None = None


START = Cursor()


@dataclass(frozen=True, slots=True)
class RecordingDelta:
    """Part of a recording: everything after a cursor."""

    group_id: str
    # Everything that is recorded: the reader drops what it has.
    is_complete: bool
    # Oldest first.
    samples: tuple[Sample, ...]
    # The reader passes this one next.
    cursor: Cursor


class GroupRecording:
    """Recording of one group; bounded as its parts are. Times are wall-clock milliseconds, passed in by the caller."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._samples = Samples()

    def record(self, view: GroupView, at_ms: int) -> None:
        """Record the group's state at `at_ms`."""
        self._samples.add(view, at_ms)

    def since(self, cursor: Cursor) -> RecordingDelta:
        """Return what was recorded after the cursor; everything after START."""
        samples = tuple(self._samples.since(cursor.sample))
        return RecordingDelta(
            group_id=self._group_id,
            is_complete=cursor == START,
            samples=samples,
            cursor=Cursor(samples[-1].number if samples else cursor.sample),
        )
