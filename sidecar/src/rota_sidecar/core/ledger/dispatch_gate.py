"""Whether more may be handed out: only what a durable commit has announced, so that a crash finds the truth there."""

from rota_sidecar.core.ledger.commit_points import CommitPoint, State, parse_commit_metadata
from rota_sidecar.core.ledger.poison_probe import PoisonRecordProbe


class DispatchGate:
    """Without marks everything may go at once: then the application commits by itself, and keeps its own account."""

    def __init__(self, *, has_metadata: bool) -> None:
        self.probe = PoisonRecordProbe()
        self._has_metadata = has_metadata
        self._durable: CommitPoint | None = None
        # Whether the durable commit says that records may be in hand.
        self._is_open = False
        # The place of the one record that the next commit announces, and how.
        self._claim: tuple[int, State] | None = None
        self._is_wanted = True

    @property
    def has_metadata(self) -> bool:
        """Whether commits are marked."""
        return self._has_metadata

    def state(self, low: int) -> State:
        """What a commit at this place says may be in hand."""
        return self._claim[1] if self._claim is not None and self._claim[0] == low else State.OPEN

    @property
    def is_granted(self) -> bool:
        """Whether records may go out."""
        return not self._has_metadata or (self.probe.is_cleared if self.probe.is_on else self._is_open)

    @property
    def is_wanted(self) -> bool:
        """Whether the next commit is waited for, if it announces something; the first is, whoever takes records."""
        return self._has_metadata and self._is_wanted

    def ask(self, low: int, state: State) -> None:
        """Records are to go out, the one at `low` first; if it goes by itself, in this way."""
        self._is_wanted = True
        self._claim = (low, state) if self.probe.is_single else None

    def answer(self, point: CommitPoint) -> bool:
        """Whether they may, when this is what there is to commit."""
        if self.probe.is_on and self._durable == point:
            self.probe.is_cleared = True
        return self.is_granted

    def withdraw(self) -> None:
        """What was announced is not in hand, or is so no more."""
        if self.probe.is_single:
            self.probe.is_cleared = False
        if self._claim is not None:
            self._claim = None
            self._is_wanted = True

    def awaits(self, point: CommitPoint) -> bool:
        """Whether somebody waits for this to be committed."""
        return self.is_wanted and not self._is_announced(point)

    def committed(self, committed: CommitPoint, point: CommitPoint) -> None:
        """That is durable, while this is what there is to commit."""
        self._durable = committed
        self._is_open = parse_commit_metadata(committed.metadata).state is not State.CLEAN
        # A clean commit ends a tenure, or a drain does: only who wants to hand out more may revoke that.
        if self._is_announced(point) or not self._is_open:
            self._is_wanted = False

    def _is_announced(self, point: CommitPoint) -> bool:
        return self._durable == point if self.probe.is_on else self._is_open
