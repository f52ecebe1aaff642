"""The history of one group: its rebalances, each with what brought it about and how long it took, and who came and went."""

from collections import deque
from collections.abc import Mapping, Sequence

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import EventKind, HistoryEvent

EVENTS_MAX = 200
# More names than these are counted.
NAMES_SHOWN = 3

Owners = Mapping[Partition, str]


class History:
    """The newest moment comes first."""

    def __init__(self) -> None:
        self._events: deque[HistoryEvent] = deque(maxlen=EVENTS_MAX)
        self._members: frozenset[str] = frozenset()
        self._owners: Owners = {}
        self._generation: int | None = None
        self._since_ms: int | None = None
        # Of the next rebalance: what can be seen, and what the coordinator says.
        self._observed_changes: list[str] = []
        self._reasons: list[str] = []
        self.rebalances = 0

    @property
    def events(self) -> Sequence[HistoryEvent]:
        """As many as are remembered."""
        return tuple(self._events)

    def add(self, event: HistoryEvent) -> None:
        """Something else has happened."""
        self._events.appendleft(event)

    def members_changed(self, names: frozenset[str], at_ms: int) -> None:
        """These are the members now."""
        for kind, word, changed in (
            (EventKind.JOINED, "joined", names - self._members),
            (EventKind.LEFT, "left", self._members - names),
        ):
            for name in sorted(changed):
                self.add(HistoryEvent(at_ms, kind, f"{name} {word}"))
            if changed:
                self._observed_changes.append(f"{_joined_names(changed)} {word}")
        self._members = names

    def rebalance_started(self, at_ms: int, reason: str) -> None:
        """The group is not stable."""
        if self._since_ms is None:
            self._since_ms = at_ms
        self._add_reason(reason)

    def group_stable(self, generation: int | None, owners: Owners, at_ms: int, reason: str) -> None:
        """
        The group is stable, as was seen at `at_ms`. Without a generation (Kafka's brokers report none) a rebalance is a
        round that was seen, or other members or owners.
        """
        is_same = generation == self._generation
        if generation is None:
            is_same = self._since_ms is None and not self._observed_changes and owners == self._owners
        if is_same:
            self._since_ms = None
            return
        self._add_reason(reason)
        moved = sum(owner != self._owners.get(partition) for partition, owner in owners.items())
        self.add(
            HistoryEvent(
                at_ms=at_ms,
                kind=EventKind.REBALANCE,
                # What the coordinator says tells also why; that members came or went is not all of it.
                message=", ".join(self._reasons or self._observed_changes) or "members rejoined",
                generation=generation,
                # It was over before anybody looked.
                pause_ms=None if self._since_ms is None else at_ms - self._since_ms,
                moved=moved,
            )
        )
        self.rebalances += 1
        self._generation, self._owners, self._since_ms = generation, dict(owners), None
        self._observed_changes, self._reasons = [], []

    def _add_reason(self, reason: str) -> None:
        # One round is told of several times, and one may begin before the other is over.
        if reason and reason not in self._reasons:
            self._reasons.append(reason)

    def group_emptied(self) -> None:
        """Nobody is in it: the next rebalance begins with the first who comes."""
        self._since_ms, self._owners = None, {}
        self._observed_changes, self._reasons = [], []


def _joined_names(names: frozenset[str]) -> str:
    shown = sorted(names)[:NAMES_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
