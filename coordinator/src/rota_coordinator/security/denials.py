"""
Records of refused calls and requests in the event log: who was refused what, and why; never a token.

Called by `access_control`. The time is an argument.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

# Repetitions of a refusal within this time are one record with their count.
PERIOD_S = 10.0
# Different refusals that are recorded in one period; further ones are counted in one record.
DENIALS_MAX = 1_000
TEXT_LENGTH_MAX = 500


class Record(Protocol):
    """Writes a record into the event log, as `EventLog.warning` does."""

    def __call__(self, message: str, event: str = "warning", **fields: str | float) -> None: ...


class Denial(NamedTuple):
    """A refused request, or a refused call whose caller is not known."""

    # Empty: the caller could not be authenticated.
    principal: str
    # Of the principal, as namespace/name; empty for one that is no pod.
    pod: str
    # Address of the peer, where the caller is not known.
    address: str
    # Name of the request, such as JoinGroup; empty for a call that was refused before its message was read.
    api: str
    # Group, topic or transactional id.
    resource: str
    # Name of the error code, or the reason.
    error: str


@dataclass(slots=True)
class Period:
    """Invariant: `repeated` counts the repetitions that no record has yet."""

    since_s: float
    repeated: int = 0


class DenialLog:
    """
    Records each refusal once at the moment it happens, and its repetitions once in a period, with their count.

    Invariant: at most DENIALS_MAX different refusals of the last PERIOD_S are remembered, and so recorded.
    """

    def __init__(self, record: Record, clock: Callable[[], float]) -> None:
        self._record = record
        self._clock = clock
        self._periods: dict[Denial, Period] = {}
        self._unrecorded = 0

    def add(self, denial: Denial) -> None:
        """Record a refusal, or count it as a repetition."""
        now_s = self._clock()
        known = self._periods.get(denial)
        if known is not None and now_s - known.since_s < PERIOD_S:
            known.repeated += 1
        elif known is None and len(self._periods) >= DENIALS_MAX:
            self._unrecorded += 1
        else:
            repeated = 0 if known is None else known.repeated
            self._periods[denial] = Period(now_s)
            self._write(denial, repeated + 1)

    def flush(self) -> None:
        """Record the repetitions of the periods that have ended, and forget those periods."""
        now_s = self._clock()
        for denial in [each for each, period in self._periods.items() if now_s - period.since_s >= PERIOD_S]:
            if repeated := self._periods.pop(denial).repeated:
                self._write(denial, repeated)
        if self._unrecorded:
            count, self._unrecorded = self._unrecorded, 0
            self._record(f"{count} further requests were refused", "refused", count=count)

    def _write(self, denial: Denial, count: int) -> None:
        shown = Denial(*(each[:TEXT_LENGTH_MAX] for each in denial))
        fields = {name: value for name, value in shown._asdict().items() if value}
        self._record(_message(shown), "refused", **fields, count=count)


def _message(denial: Denial) -> str:
    if not denial.principal:
        return f"a call from {denial.address} was refused: {denial.error}"
    pod = f" (pod {denial.pod})" if denial.pod else ""
    about = f" {denial.resource!r}" if denial.resource else ""
    what = denial.api or "a call"
    return f"{denial.principal}{pod} was refused {what}{about}: {denial.error}"
