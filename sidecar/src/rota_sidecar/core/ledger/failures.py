"""Records that failed: when each is delivered again, which of them kill applications, which have failed for good."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush

from rota_sidecar.core.ledger.rules import Backoff, Rules

# So often at most the exponential backoff doubles; it has reached every sensible maximum by then.
_DOUBLINGS_MAX = 32
# Of the application's reason. It stands in a header of the dead letter, and there may be thousands of those.
_REASON_CHARACTERS_MAX = 1_000
# So many entries of the agenda that mean nothing any more are put up with.
_STALE_MAX = 64


class Fate(Enum):
    """What becomes of a record that has failed for good."""

    # It is to be written as a dead letter,
    DEAD_LETTER = "letter"
    # is being written,
    WRITING = "writing"
    # or has nowhere to go, and stops its partition.
    STOP = "stop"


@dataclass(slots=True)
class Trouble:
    """Of one record."""

    # Verdicts that asked for another delivery.
    retries: int = 0
    # Deliveries during which the application died.
    charges: int = 0
    # In its last delivery the application had nothing else in hand.
    was_alone: bool = False
    fate: Fate | None = None
    reason: str = ""
    # Until it had failed for good.
    deliveries: int = 0

    @property
    def failed(self) -> int:
        """Deliveries that failed."""
        return self.retries + self.charges


class Troubles:
    """By place."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._all: dict[int, Trouble] = {}
        self._due: dict[int, int] = {}
        # The same in the order of time; what is not in `_due` any more is passed over.
        self._agenda: list[tuple[int, int]] = []
        # Records that go out alone only, because they are suspected.
        self.loners: set[int] = set()
        # Records that have failed for good.
        self.doomed: dict[int, Trouble] = {}
        # Those that have become LETTER; some may have been settled meanwhile.
        self._dead_letters: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def get(self, place: int) -> Trouble | None:
        """None: it has none."""
        return self._all.get(place)

    def within(self, first: int, end: int) -> Iterable[int]:
        """Which of these have any, in order."""
        if len(self._all) < end - first:
            return sorted(place for place in self._all if first <= place < end)
        return [place for place in range(first, end) if place in self._all]

    def inherit(self, place: int, trouble: Trouble) -> None:
        """It comes with that, from another tenure."""
        self._all[place] = trouble
        self._suspect(place, trouble)
        if trouble.charges:
            self._condemn_if_alone(place, trouble)

    def forget(self, first: int, end: int) -> None:
        """These are done."""
        if not self._all:
            return
        for place in self.within(first, end):
            del self._all[place]
            self._due.pop(place, None)
            self.loners.discard(place)
            self.doomed.pop(place, None)

    # ------------------------------------------------------------------------------------------ failures

    def retry(self, place: int, now_ms: int, after_ms: int | None, reason: str) -> None:
        """The application wants it again."""
        trouble = self._all.setdefault(place, Trouble())
        trouble.retries += 1
        self._suspect(place, trouble)
        if trouble.retries > self._rules.retries:
            self._condemn(place, trouble, reason)
        else:
            wait_ms = self._backoff_ms(trouble.retries) if after_ms is None else max(0, after_ms)
            self._plan(place, now_ms + wait_ms)

    def charge(self, place: int) -> None:
        """The application died with it in hand."""
        trouble = self._all.setdefault(place, Trouble())
        trouble.charges += 1
        self._suspect(place, trouble)
        self._condemn_if_alone(place, trouble)

    def condemn(self, place: int, reason: str) -> None:
        """The application never wants it again."""
        trouble = self._all.setdefault(place, Trouble())
        self._condemn(place, trouble, reason)
        trouble.deliveries += 1

    def reject(self, place: int, reason: str) -> None:
        """The application could never be given it."""
        self._condemn(place, self._all.setdefault(place, Trouble()), reason)

    def _suspect(self, place: int, trouble: Trouble) -> None:
        if trouble.charges and trouble.failed > self._rules.retries:
            self.loners.add(place)

    def _condemn_if_alone(self, place: int, trouble: Trouble) -> None:
        if trouble.was_alone and place in self.loners:
            times = "once" if trouble.charges == 1 else f"{trouble.charges} times"
            self._condemn(place, trouble, f"the application died {times} with this record in hand")

    def _condemn(self, place: int, trouble: Trouble, reason: str) -> None:
        trouble.fate = Fate.DEAD_LETTER if self._rules.has_dead_letters else Fate.STOP
        trouble.reason, trouble.deliveries = reason[:_REASON_CHARACTERS_MAX], trouble.failed
        self.doomed[place] = trouble
        if trouble.fate is Fate.DEAD_LETTER:
            self._dead_letters.append(place)

    def _backoff_ms(self, retries: int) -> int:
        return min(self._rules.backoff_ms * _factor(self._rules.backoff, retries), self._rules.backoff_max_ms)

    # ------------------------------------------------------------------------------------------ retries

    def _plan(self, place: int, at_ms: int) -> None:
        self._due[place] = at_ms
        heappush(self._agenda, (at_ms, place))
        if len(self._agenda) > 2 * len(self._due) + _STALE_MAX:
            self._agenda = sorted((due_ms, each) for each, due_ms in self._due.items())

    @property
    def wake_ms(self) -> int | None:
        """When the next one is due."""
        while self._agenda and self._due.get(self._agenda[0][1]) != self._agenda[0][0]:
            heappop(self._agenda)
        return self._agenda[0][0] if self._agenda else None

    def first_waiting(self, before: int) -> int:
        """The lowest place that waits for its time, or `before`."""
        return min(self._due, default=before)

    def wake(self, now_ms: int) -> list[int]:
        """Those whose time has come wait no more."""
        woken: list[int] = []
        while (due_ms := self.wake_ms) is not None and due_ms <= now_ms:
            place = heappop(self._agenda)[1]
            del self._due[place]
            woken.append(place)
        return woken

    # ------------------------------------------------------------------------------------------ dead letters

    def dead_letters(self) -> list[int]:
        """Those that are to be written are being written from now on."""
        due = [place for place in self._dead_letters if place in self.doomed]
        self._dead_letters.clear()
        for place in due:
            self.doomed[place].fate = Fate.WRITING
        return due

    def dead_letter_failed(self, place: int) -> None:
        """It is to be written again."""
        self.doomed[place].fate = Fate.DEAD_LETTER
        self._dead_letters.append(place)


def _factor(backoff: Backoff, retries: int) -> int:
    match backoff:
        case Backoff.CONSTANT:
            return 1
        case Backoff.LINEAR:
            return retries
        case Backoff.EXPONENTIAL:
            return 1 << min(retries - 1, _DOUBLINGS_MAX)
