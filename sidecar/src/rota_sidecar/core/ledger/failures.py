"""Failure records of a partition: retries with their backoff, crashes of the application, records that failed permanently."""

from collections.abc import Collection, Iterable
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

from rota_sidecar.core.ledger.rules import Backoff, Rules

# Limit of doublings of the exponential backoff; it has reached every sensible maximum by then.
_DOUBLINGS_MAX = 32
# Limit of the application's reason in characters. It is kept for each exhausted record, for a header of the dead letter.
_REASON_CHARACTERS_MAX = 1_000
# Limit of obsolete entries of the agenda, beyond the number of valid ones.
_STALE_MAX = 64


class Disposition(Enum):
    """The next step for a record that failed permanently."""

    # Write its dead letter.
    DEAD_LETTER = "dead letter"
    # Wait for the write of its dead letter.
    WRITING = "writing"
    # Stop the partition, because there is no dead-letter topic.
    STOP = "stop"


class FailureRecord(NamedTuple):
    """The failures of one record."""

    # Verdicts that asked for another delivery.
    retries: int = 0
    # Deliveries during which the application died.
    crashes: int = 0
    # True if no other record was in flight during its last delivery.
    was_alone: bool = False
    disposition: Disposition | None = None
    reason: str = ""
    # Number of deliveries when it failed permanently.
    deliveries: int = 0

    @property
    def failed(self) -> int:
        """Return the number of failed deliveries."""
        return self.retries + self.crashes


NO_FAILURE = FailureRecord()


class FailureRecords:
    """
    The failure records of one partition, by index.

    Invariant: every index in `exhausted`, `isolated_records` and `_due` has a failure record.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._all: dict[int, FailureRecord] = {}
        self._due: dict[int, int] = {}
        # The same as a heap of (time in ms, index); entries that are not in `_due` are obsolete.
        self._agenda: list[tuple[int, int]] = []
        self._isolated: set[int] = set()
        self._exhausted: set[int] = set()
        # Indexes with DEAD_LETTER; some may have been settled since.
        self._dead_letters: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def isolated_records(self) -> Collection[int]:
        """Return the indexes that are dispatched in isolation only, because they may crash the application."""
        return self._isolated

    @property
    def exhausted(self) -> Collection[int]:
        """Return the indexes of the records that failed permanently."""
        return self._exhausted

    def get(self, index: int) -> FailureRecord:
        """Return the failure record; one without failures if the record never failed."""
        return self._all.get(index, NO_FAILURE)

    def within(self, first: int, end: int) -> Iterable[int]:
        """Return the indexes in this range that have a failure record, in ascending order."""
        if len(self._all) < end - first:
            return sorted(index for index in self._all if first <= index < end)
        return [index for index in range(first, end) if index in self._all]

    def inherit(self, index: int, failure: FailureRecord) -> None:
        """Set the failure record that an earlier owner left in the commit."""
        self._note(index, failure)
        if failure.crashes:
            self._fail_if_alone(index, failure)

    def forget(self, first: int, end: int) -> None:
        """Drop the failure records of this range: these records are done."""
        if not self._all:
            return
        for index in self.within(first, end):
            del self._all[index]
            self._due.pop(index, None)
            self._isolated.discard(index)
            self._exhausted.discard(index)

    # ------------------------------------------------------------------------------------------ failures

    def _note(self, index: int, failure: FailureRecord) -> FailureRecord:
        self._all[index] = failure
        if failure.crashes and failure.failed > self._rules.retries:
            self._isolated.add(index)
        return failure

    def dispatched(self, index: int, *, alone: bool) -> int:
        """Note another delivery of a record that has failed; return its number."""
        failure = self._all[index] = self._all[index]._replace(was_alone=alone)
        return failure.failed + 1

    def retry(self, index: int, now_ms: int, after_ms: int | None, reason: str) -> None:
        """Count a RETRY, and schedule the next delivery; after too many the record fails permanently."""
        failure = self.get(index)
        failure = self._note(index, failure._replace(retries=failure.retries + 1))
        if failure.retries > self._rules.retries:
            self._fail_permanently(index, failure, reason)
        else:
            wait_ms = self._backoff_ms(failure.retries) if after_ms is None else max(0, after_ms)
            self._plan(index, now_ms + wait_ms)

    def count_crash(self, index: int) -> None:
        """Count a crash of the application while the record was in flight."""
        failure = self.get(index)
        self._fail_if_alone(index, self._note(index, failure._replace(crashes=failure.crashes + 1)))

    def fail_permanently(self, index: int, reason: str) -> None:
        """Fail the record on the application's verdict DEAD_LETTER."""
        failure = self.get(index)
        self._fail_permanently(index, failure, reason, deliveries=failure.failed + 1)

    def reject(self, index: int, reason: str) -> None:
        """Fail a record that cannot be given to the application at all."""
        self._fail_permanently(index, self.get(index), reason)

    def _fail_if_alone(self, index: int, failure: FailureRecord) -> None:
        if failure.was_alone and index in self._isolated:
            times = "once" if failure.crashes == 1 else f"{failure.crashes} times"
            self._fail_permanently(
                index, failure, f"the application crashed {times} while this record was in flight"
            )

    def _fail_permanently(
        self, index: int, failure: FailureRecord, reason: str, deliveries: int | None = None
    ) -> None:
        disposition = Disposition.DEAD_LETTER if self._rules.has_dead_letters else Disposition.STOP
        self._all[index] = failure._replace(
            disposition=disposition,
            reason=reason[:_REASON_CHARACTERS_MAX],
            deliveries=failure.failed if deliveries is None else deliveries,
        )
        self._exhausted.add(index)
        if disposition is Disposition.DEAD_LETTER:
            self._dead_letters.append(index)

    def _set_disposition(self, index: int, disposition: Disposition) -> None:
        self._all[index] = self._all[index]._replace(disposition=disposition)

    def _backoff_ms(self, retries: int) -> int:
        return min(self._rules.backoff_ms * _factor(self._rules.backoff, retries), self._rules.backoff_max_ms)

    # ------------------------------------------------------------------------------------------ retries

    def _plan(self, index: int, at_ms: int) -> None:
        self._due[index] = at_ms
        heappush(self._agenda, (at_ms, index))
        if len(self._agenda) > 2 * len(self._due) + _STALE_MAX:
            self._agenda = sorted((due_ms, each) for each, due_ms in self._due.items())

    @property
    def wake_ms(self) -> int | None:
        """Return when the next retry is due, in milliseconds; None: no retry waits."""
        while self._agenda and self._due.get(self._agenda[0][1]) != self._agenda[0][0]:
            heappop(self._agenda)
        return self._agenda[0][0] if self._agenda else None

    def first_waiting(self, before: int) -> int:
        """Return the lowest index that waits for its retry, or `before`."""
        return min(self._due, default=before)

    def wake(self, now_ms: int) -> list[int]:
        """Return the indexes whose retry is due, and drop their timers."""
        woken: list[int] = []
        while (due_ms := self.wake_ms) is not None and due_ms <= now_ms:
            index = heappop(self._agenda)[1]
            del self._due[index]
            woken.append(index)
        return woken

    # ------------------------------------------------------------------------------------------ dead letters

    def dead_letters(self) -> list[int]:
        """Return the indexes whose dead letters are to be written, and mark them as being written."""
        due = [index for index in self._dead_letters if index in self._exhausted]
        self._dead_letters.clear()
        for index in due:
            self._set_disposition(index, Disposition.WRITING)
        return due

    def dead_letter_failed(self, index: int) -> None:
        """Schedule the dead letter of this record for another attempt."""
        self._set_disposition(index, Disposition.DEAD_LETTER)
        self._dead_letters.append(index)


def _factor(backoff: Backoff, retries: int) -> int:
    match backoff:
        case Backoff.CONSTANT:
            return 1
        case Backoff.LINEAR:
            return retries
        case Backoff.EXPONENTIAL:
            return 1 << min(retries - 1, _DOUBLINGS_MAX)
