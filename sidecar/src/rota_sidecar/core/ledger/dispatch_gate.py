"""
Gate for dispatch: records are dispatched only after a commit has announced them, so that the commit is right after a crash.

Called by `ledger` before each dispatch (`request`, `is_granted_at`) and after each commit (`committed`).
"""

from rota_sidecar.core.ledger.commit_points import CommitPoint, State, parse_commit_metadata
from rota_sidecar.core.ledger.poison_probe import PoisonRecordProbe


class DispatchGate:
    """
    Invariant: with metadata, no record is dispatched before a durable commit says that records may be in flight.

    Without metadata the gate is always open: the application commits by itself.
    """

    def __init__(self, *, has_metadata: bool) -> None:
        self.probe = PoisonRecordProbe()
        self._has_metadata = has_metadata
        self._durable: CommitPoint | None = None
        # True if the durable commit says that records may be in flight.
        self._is_open = False
        # Index of the one record that the next commit announces, and the state that it announces.
        self._claim: tuple[int, State] | None = None
        self._is_wanted = True

    @property
    def has_metadata(self) -> bool:
        """Return True if commits carry metadata."""
        return self._has_metadata

    def state(self, low: int) -> State:
        """Return the state that a commit at this index announces."""
        return self._claim[1] if self._claim is not None and self._claim[0] == low else State.OPEN

    @property
    def is_granted(self) -> bool:
        """Return True if records may be dispatched."""
        return not self._has_metadata or (self.probe.is_cleared if self.probe.is_on else self._is_open)

    @property
    def is_wanted(self) -> bool:
        """Return True if dispatch waits for a commit that announces records; initially it does."""
        return self._has_metadata and self._is_wanted

    def request(self, low: int, state: State) -> None:
        """Request to dispatch records, the one at `low` first; `state` holds if that record goes out by itself."""
        self._is_wanted = True
        self._claim = (low, state) if self.probe.is_single else None

    def is_granted_at(self, point: CommitPoint) -> bool:
        """Return True if records may be dispatched when `point` is the point to commit."""
        if self.probe.is_on and self._durable == point:
            self.probe.is_cleared = True
        return self.is_granted

    def withdraw(self) -> None:
        """Withdraw the announcement: the announced record is not in flight, or no longer."""
        if self.probe.is_single:
            self.probe.is_cleared = False
        if self._claim is not None:
            self._claim = None
            self._is_wanted = True

    def awaits(self, point: CommitPoint) -> bool:
        """Return True if dispatching waits until this point is committed."""
        return self.is_wanted and not self._is_announced(point)

    def committed(self, committed: CommitPoint, point: CommitPoint) -> None:
        """Record that `committed` is durable, while `point` is the point to commit now."""
        self._durable = committed
        self._is_open = parse_commit_metadata(committed.metadata).state is not State.CLEAN
        # A clean commit ends a tenure or a drain; only a new request may replace it.
        if self._is_announced(point) or not self._is_open:
            self._is_wanted = False

    def _is_announced(self, point: CommitPoint) -> bool:
        return self._durable == point if self.probe.is_on else self._is_open
