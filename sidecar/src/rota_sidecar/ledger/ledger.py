"""
One partition in one tenure: what was read, what the application holds, and how far it is done. The ledger's door.

Called by `rota_sidecar.delivery`, which drops it with the tenure, and with every seek.
"""

from collections.abc import Sequence

from rota_sidecar.ledger.batches import Batch, Handover
from rota_sidecar.ledger.marks import Mark, Point
from rota_sidecar.ledger.outcomes import Judged, LetterDue
from rota_sidecar.ledger.rules import Rules, Verdict


class Ledger:
    """Nothing here is asked for what the application said of another ledger."""

    def __init__(self, start: int, rules: Rules, mark: Mark | None) -> None:
        """Begin at `start`, whose commit had this mark; None: the sidecar commits nothing here by itself."""

    # ------------------------------------------------------------------------------------------ reading

    @property
    def position(self) -> int:
        """Where to read on."""
        raise NotImplementedError

    @property
    def buffered_bytes(self) -> int:
        """Of what was read and never handed out."""
        raise NotImplementedError

    def fetched(self, batches: Sequence[Batch], next_offset: int) -> None:
        """These come next; reading goes on at `next_offset`. What lies before the position is passed over."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ handing out

    @property
    def handed(self) -> int:
        """The next offset that is handed out for the first time."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """Records that were read and are not in hand; those that come again are among them."""
        raise NotImplementedError

    @property
    def in_hand(self) -> int:
        """Records that the application has."""
        raise NotImplementedError

    @property
    def lanes_busy(self) -> int:
        """How many records it may be working on at the same time."""
        raise NotImplementedError

    @property
    def wants_alone(self) -> bool:
        """
        A record is to go out while nothing else is in the application's hands, or is there now.

        Hand out nothing of other partitions then, and offer `alone` when the hands are empty; to one ledger at a time,
        until it does not want it any more.
        """
        raise NotImplementedError

    def take(self, records_max: int, lanes_max: int, now_ms: int, *, alone: bool) -> Sequence[Handover]:
        """What goes to the application now. `alone`: nothing else is in its hands, and nothing will be."""
        raise NotImplementedError

    @property
    def wake_ms(self) -> int | None:
        """When `take` may give a record again that waits; in the past until `take` was asked."""
        raise NotImplementedError

    @property
    def held_since_ms(self) -> int | None:
        """Since when the application works on the same record; the longest counts. None: it has none."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ verdicts

    def judge(
        self,
        first: int,
        last: int,
        verdict: Verdict,
        now_ms: int,
        *,
        retry_after_ms: int | None = None,
        reason: str = "",
    ) -> Judged:
        """The application's verdict on the records from `first` to `last`, inclusive."""
        raise NotImplementedError

    def settle_below(self, offset: int) -> None:
        """Everything before the offset is done, whatever it was; if nothing was read so far, reading goes on there."""
        raise NotImplementedError

    def application_gone(self, now_ms: int, *, clean: bool) -> None:
        """Nothing is in hand any more. Unless it went in good order, what it worked on is suspected."""
        raise NotImplementedError

    @property
    def stopped(self) -> str:
        """Why nothing is handed out any more before somebody decides: one sentence, or nothing."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ dead letters

    def letters(self) -> Sequence[LetterDue]:
        """Records that are to be written as dead letters now; each is given once, and again after it failed."""
        raise NotImplementedError

    def letter_written(self, offset: int) -> None:
        """It is there, durably: the record is done."""
        raise NotImplementedError

    def letter_failed(self, offset: int) -> None:
        """It is not, and is due again."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ committing

    @property
    def point(self) -> Point:
        """What to commit now: no record at or after this offset is lost when everything here is forgotten."""
        raise NotImplementedError

    @property
    def awaits_commit(self) -> bool:
        """Nothing more is handed out before `point` is committed. `take` may be what makes it so."""
        raise NotImplementedError

    def committed(self, point: Point) -> None:
        """It is durable; the latest one counts."""
        raise NotImplementedError

    @property
    def first_unresolved(self) -> tuple[Batch, int] | None:
        """The record at the commit point, where it was read already."""
        raise NotImplementedError

    def close(self) -> Point:
        """What to commit at the end of the tenure, in good order."""
        raise NotImplementedError
