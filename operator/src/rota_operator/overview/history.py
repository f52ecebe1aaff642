"""Event history of one group: rebalances with reason, duration and moved partitions; members that joined and left."""

from collections import deque
from collections.abc import Mapping, Sequence

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import EventKind, HistoryEvent

EVENTS_MAX = 200
# Maximum number of names in one message; the rest is counted.
NAMES_SHOWN = 3

Owners = Mapping[Partition, str]


class History:
    """Invariant: at most EVENTS_MAX events, newest first."""

    def __init__(self) -> None:
        self._events: deque[HistoryEvent] = deque(maxlen=EVENTS_MAX)
        self._members: frozenset[str] = frozenset()
        self._owners: Owners = {}
        self._generation: int | None = None
        self._since_ms: int | None = None
        # Reasons of the next rebalance: observed changes, and the coordinator's own text.
        self._observed_changes: list[str] = []
        self._reasons: list[str] = []
        self.rebalances = 0

    @property
    def events(self) -> Sequence[HistoryEvent]:
        """The remembered events, newest first."""
        return tuple(self._events)

    def add(self, event: HistoryEvent) -> None:
        """Append an event; the oldest one is dropped at the limit."""
        self._events.appendleft(event)

    def members_changed(self, names: frozenset[str], at_ms: int) -> None:
        """Record the members that joined and left since the last call."""
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
        """Record that the group is rebalancing; the first call starts the pause."""
        if self._since_ms is None:
            self._since_ms = at_ms
        self._add_reason(reason)

    def group_stable(self, generation: int | None, owners: Owners, at_ms: int, reason: str) -> None:
        """
        Record a rebalance if the group is stable in a new generation at `at_ms`.

        Kafka brokers report no generation (None): a rebalance is then a change of members or owners, or an observed
        rebalancing state.
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
                # The coordinator's text takes precedence: joined and left members may be only a part of the
                # reason.
                message=", ".join(self._reasons or self._observed_changes) or "members rejoined",
                generation=generation,
                # The rebalance was over before it was observed.
                pause_ms=None if self._since_ms is None else at_ms - self._since_ms,
                moved=moved,
            )
        )
        self.rebalances += 1
        self._generation, self._owners, self._since_ms = generation, dict(owners), None
        self._observed_changes, self._reasons = [], []

    def _add_reason(self, reason: str) -> None:
        # One rebalance is described several times, and one may begin before the previous one is over.
        if reason and reason not in self._reasons:
            self._reasons.append(reason)

    def group_emptied(self) -> None:
        """Forget owners and reasons: the next rebalance starts with the first member that joins."""
        self._since_ms, self._owners = None, {}
        self._observed_changes, self._reasons = [], []


def _joined_names(names: frozenset[str]) -> str:
    shown = sorted(names)[:NAMES_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
