"""
Progress of a partition: the fetch, the dead letters and the ledger of a delivery epoch, and the commits of a tenure.

Used by `partition`. Every seek, every reset and every change of the terms begins another fetch session; outcomes of the former are
ignored.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery.context import Context, Timer
from rota_sidecar.core.delivery.events import Unreadable
from rota_sidecar.core.delivery.states import PendingCommit, Terms
from rota_sidecar.core.ledger.commit_points import CommitPoint, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Offset, Partition


class Prefetch:
    """
    The fetch of one session, and why there is none.

    Invariant: at most one fetch is under way, and none begins while the position has expired or an unreadable batch waits.
    """

    def __init__(self) -> None:
        # Offset of the fetch under way; None: no fetch is under way.
        self._offset: int | None = None
        self._has_read = False
        self._expired = ""
        self._unreadable = ""
        self._poison: Unreadable | None = None
        self._attempts = 0
        self._retry_ms = 0

    @property
    def is_under_way(self) -> bool:
        """Return True if a fetch is under way."""
        return self._offset is not None

    @property
    def has_read(self) -> bool:
        """Return True after the first successful fetch: the position was in the log."""
        return self._has_read

    @property
    def expired(self) -> str:
        """Return why the position is no longer in the log; empty: it is."""
        return self._expired

    @property
    def unreadable(self) -> str:
        """Return why the batch at the position cannot be decoded; empty: it can, or was not fetched."""
        return self._unreadable

    @property
    def poison(self) -> Unreadable | None:
        """Return this batch, if it is to become a dead letter when all records before it are done."""
        return self._poison

    @property
    def attempts(self) -> int:
        """Return the number of failed attempts since the last successful fetch."""
        return self._attempts

    def may_begin(self, now_ms: int) -> bool:
        """Return True if a fetch may begin at this time."""
        return (
            self._offset is None and not self._expired and self._poison is None and now_ms >= self._retry_ms
        )

    def begin(self, offset: int) -> None:
        """Begin a fetch from this offset on."""
        self._offset = offset

    def end(self) -> int | None:
        """End the fetch, without an outcome or with one; return its offset, None if none was under way."""
        offset, self._offset = self._offset, None
        return offset

    def succeed(self) -> None:
        """Record a successful fetch."""
        self._has_read, self._unreadable, self._attempts = True, "", 0

    def retry(self, at_ms: int, unreadable: str) -> None:
        """Record a failed attempt; the next one may begin at this time."""
        self._attempts += 1
        self._retry_ms = at_ms
        self._unreadable = unreadable or self._unreadable

    def expire(self, message: str) -> None:
        """Record that the position is not in the log."""
        self._expired = message

    def resume(self) -> None:
        """Read on at another position than the one that has expired."""
        self._expired = ""

    def hold(self, poison: Unreadable) -> None:
        """Begin no fetch before this batch has become a dead letter."""
        self._poison, self._unreadable = poison, poison.reason

    def pass_poison(self) -> None:
        """Read on after the unreadable batch."""
        self._poison, self._unreadable = None, ""


class DeadLetterWrites:
    """
    The dead letters of one session that are being written.

    Invariant: each write has one number, by which its outcome comes. A failed write is made again, after a wait.
    """

    def __init__(self, context: Context, partition: Partition, ledger: Ledger) -> None:
        self._context = context
        self._partition = partition
        self._ledger = ledger
        self._topic = ""
        # Offsets by number.
        self._writes: dict[int, int] = {}
        # True if the last write failed, and is made again.
        self._is_waiting = False
        self._attempts = 0
        self._retry_ms = 0

    @property
    def topic(self) -> str:
        """Return the topic of the present dead letters."""
        return self._topic

    @property
    def are_under_way(self) -> bool:
        """Return True if a dead letter is being written."""
        return bool(self._writes)

    @property
    def are_open(self) -> bool:
        """Return True if a dead letter is being written, or waits for another attempt."""
        return bool(self._writes) or self._is_waiting

    def write_due(self) -> None:
        """Write the dead letters that are due."""
        context = self._context
        if context.now_ms < self._retry_ms:
            return
        self._topic = context.conditions.dead_letter_topic
        # A record whose dead letter could not be written may have been settled by a commit or a skip since.
        self._is_waiting = False
        for due in self._ledger.dead_letters():
            number = context.claim_number(self._partition)
            self._writes[number] = due.offset
            context.emit(
                do.WriteDeadLetter(
                    number, self._topic, self._partition, due.batch_slice, due.reason, due.deliveries
                )
            )

    def is_writing(self, number: int) -> bool:
        """Return True if the write with this number is one of this session."""
        return number in self._writes

    def end(self, number: int, problem: str) -> None:
        """Complete the record, or write again after a wait if there is a problem."""
        offset, context = self._writes.pop(number), self._context
        if not problem:
            self._ledger.dead_letter_written(offset)
            self._attempts = 0
            return
        self._ledger.dead_letter_failed(offset)
        self._is_waiting = True
        if context.now_ms >= self._retry_ms:
            self._retry_ms = context.retry_at(Timer.DEAD_LETTERS, self._partition, self._attempts)
            self._attempts += 1


@dataclass(frozen=True, slots=True, eq=False)
class FetchSession:
    """Delivery epoch of a partition. `number` is the delivery epoch."""

    number: int
    ledger: Ledger
    terms: Terms
    prefetch: Prefetch
    dead_letters: DeadLetterWrites


def open_session(context: Context, partition: Partition, ledger: Ledger, terms: Terms) -> FetchSession:
    """Begin a delivery epoch; outcomes with its number, or with that of its dead letters, belong to this partition."""
    number = context.claim_number(partition)
    return FetchSession(number, ledger, terms, Prefetch(), DeadLetterWrites(context, partition, ledger))


class Sent(NamedTuple):
    """A commit under way: the offset, the session that it comes from, and the requests that it answers."""

    offset: Offset
    session: FetchSession | None
    requests: Sequence[PendingCommit]


class CommitPosition:
    """
    The commits of one partition in one tenure.

    Invariant: at most one commit is under way, and `durable`, if known, is what the coordinator stores.
    """

    def __init__(self) -> None:
        self._durable: CommitPoint | None = None
        self._offset: int | None = None
        self._requests: deque[PendingCommit] = deque()
        self._sent: Sent | None = None
        self._attempts = 0
        self._retry_ms = 0

    @property
    def durable(self) -> CommitPoint | None:
        """Return the committed offset and metadata; None: there is none, or it is unknown after a failed commit."""
        return self._durable

    @property
    def offset(self) -> int | None:
        """Return the last known committed offset, for metrics and reports."""
        return self._offset

    @property
    def sent(self) -> Sent | None:
        """Return the commit under way."""
        return self._sent

    @property
    def requests(self) -> Sequence[PendingCommit]:
        """Return the commit requests that wait, in order."""
        return self._requests

    @property
    def attempts(self) -> int:
        """Return the number of failed attempts since the last success."""
        return self._attempts

    def may_begin(self, now_ms: int) -> bool:
        """Return True if a commit may be sent at this time."""
        return now_ms >= self._retry_ms

    def is_durable(self, point: CommitPoint) -> bool:
        """Return True if this point is committed; metadata is compared by its content."""
        durable = self._durable
        if durable is None or durable.offset != point.offset:
            return False
        return durable.metadata == point.metadata or parse_commit_metadata(
            durable.metadata
        ) == parse_commit_metadata(point.metadata)

    def set_durable(self, point: CommitPoint) -> None:
        """Record what the coordinator stores."""
        self._durable, self._offset = point, point.offset

    def forget_durable(self) -> None:
        """Record that what the coordinator stores is unknown, or of another topic."""
        self._durable = None

    def request(self, pending: PendingCommit) -> None:
        """Append a commit request."""
        self._requests.append(pending)

    def take_requests(self) -> Sequence[PendingCommit]:
        """Remove and return the requests that one commit fulfils: up to and including the first that seeks."""
        taken: list[PendingCommit] = []
        while self._requests:
            taken.append(self._requests.popleft())
            if taken[-1].seeks:
                break
        return taken

    def return_requests(self, requests: Sequence[PendingCommit]) -> None:
        """Put these requests back in front of the others; the next commit fulfils them."""
        self._requests.extendleft(reversed(requests))

    def void_requests(self) -> Sequence[PendingCommit]:
        """Remove and return the requests of the application, which were made before a reset of the offsets."""
        void = [pending for pending in self._requests if not pending.seeks]
        self._requests = deque(pending for pending in self._requests if pending.seeks)
        return void

    def begin(self, sent: Sent) -> None:
        """Begin a commit."""
        self._sent = sent

    def end(self) -> Sent:
        """End the commit under way, and return it."""
        sent, self._sent = self._sent, None
        assert sent is not None
        return sent

    def retry(self, at_ms: int) -> None:
        """Send no commit before this time, because one has failed."""
        self._retry_ms = at_ms
        self._attempts += 1

    def end_backoff(self) -> None:
        """Wait no longer before the next commit."""
        self._attempts = self._retry_ms = 0
