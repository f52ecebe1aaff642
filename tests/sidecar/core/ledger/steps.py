"""A ledger on the table, and what is done to it by hand."""

from collections.abc import Iterable, Sequence

from rota_sidecar.core.ledger import runs as completed_ahead
from rota_sidecar.core.ledger.batches import Batch, Dispatch, Ordering
from rota_sidecar.core.ledger.commit_points import CommitMetadata, CommitPoint, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules, Verdict

IN_ORDER = Rules()
ONE_BY_ONE = Rules(takes_many=False)
BY_KEY = Rules(ordering=Ordering.KEY)
UNORDERED = Rules(ordering=Ordering.UNORDERED)
MANY = 1_000_000


def batch(first: int, count: int = 1, keys: str = "") -> Batch:
    """`keys` has a letter for each record; a dot is none."""
    named = [None if key == "." else key.encode() for key in keys or "." * count]
    return Batch(first, len(named), 10 * len(named), None, named)


def opened(
    rules: Rules = IN_ORDER, *batches: Batch, start: int = 0, commit_metadata: CommitMetadata | None = None
) -> Ledger:
    """A ledger whose first commit is durable, with these records read."""
    ledger = Ledger(start, rules, commit_metadata or CommitMetadata())
    ledger.committed(ledger.point)
    read(ledger, *batches)
    return ledger


def read(ledger: Ledger, *batches: Batch) -> None:
    """Up to the end of the last one."""
    if batches:
        ledger.fetched(batches, batches[-1].end)


def commit(ledger: Ledger) -> CommitPoint:
    """Commit the present point durably."""
    ledger.committed(ledger.point)
    return ledger.point


def take(
    ledger: Ledger, records: int = MANY, *, lanes: int = MANY, now_ms: int = 0, alone: bool = False
) -> list[int]:
    """The offsets that go out."""
    return [offset for offset, _ in listed(ledger.take(records, lanes, now_ms, alone=alone))]


def listed(dispatches: Sequence[Dispatch]) -> list[tuple[int, int]]:
    """Offset by offset, and for which time."""
    return [
        (offset, dispatch.deliveries)
        for dispatch in dispatches
        for batch_slice in dispatch.slices
        for offset in range(batch_slice.first, batch_slice.end)
    ]


def ack(ledger: Ledger, *offsets: int, now_ms: int = 0) -> None:
    """One by one."""
    say(ledger, Verdict.ACK, offsets, now_ms)


def skip(ledger: Ledger, *offsets: int) -> None:
    """One by one."""
    say(ledger, Verdict.SKIP, offsets, 0)


def bury(ledger: Ledger, offset: int) -> None:
    """Fail a record permanently with the verdict DEAD_LETTER."""
    assert ledger.judge(offset, offset, Verdict.DEAD_LETTER, 0, reason="it cannot be read").settled == 1


def say(ledger: Ledger, verdict: Verdict, offsets: Iterable[int], now_ms: int) -> None:
    for offset in offsets:
        assert ledger.judge(offset, offset, verdict, now_ms).settled == 1


def retry(ledger: Ledger, offset: int, *, now_ms: int = 0, after_ms: int | None = None) -> None:
    """Once more."""
    assert ledger.judge(offset, offset, Verdict.RETRY, now_ms, retry_after_ms=after_ms).settled == 1


def refused(ledger: Ledger, first: int, last: int | None = None, verdict: Verdict = Verdict.ACK) -> str:
    """The sentence; nothing has changed."""
    before = (ledger.point, ledger.in_flight, ledger.waiting)
    settled, refusal = ledger.judge(first, first if last is None else last, verdict, 0)
    assert settled == 0
    assert (ledger.point, ledger.in_flight, ledger.waiting) == before
    return refusal


def awaits(ledger: Ledger) -> bool:
    """Return True if the ledger waits for a commit. A type checker would keep the value of the property itself."""
    return ledger.awaits_commit


def stopped(ledger: Ledger) -> str:
    """Why it stands still."""
    return ledger.stopped


def wants_alone(ledger: Ledger) -> bool:
    """Return True if a record is to be dispatched in isolation."""
    return ledger.wants_alone


def held_since(ledger: Ledger) -> int | None:
    """Return the time in ms since which the application works on its oldest record."""
    return ledger.in_flight_since_ms


def completed_ahead_of(metadata: str) -> set[int]:
    """Return the offsets that a commit's metadata reports as completed ahead."""
    runs = completed_ahead.read(parse_commit_metadata(metadata).completed_ahead)
    return {offset for run in runs for offset in range(run.first, run.end)}
