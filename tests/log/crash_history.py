"""
Rules that hold after producers and the server were killed, as functions of their event logs.

Every attempt to send differs from every other one by its chunk, so the rules are exact: an acknowledged chunk is in
the log once, any other once or not at all.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

# A producer began anew; it is about to commit, to abort; its records count, and it knows.
Word = Literal["life", "commit", "abort", "done"]
CHUNKS_OF_A_LIFE = 1_000_000
# Of what is wrong in the same way.
SHOWN = 3


class Sent(NamedTuple):
    """The value of a record: whose it is, in which attempt it was sent, and its place among all."""

    producer: str
    chunk: int
    item: int

    def value(self) -> bytes:
        """As it travels."""
        return f"{self.producer} {self.chunk} {self.item}".encode()

    @classmethod
    def of(cls, value: bytes) -> "Sent":
        """Out of a value."""
        producer, chunk, item = value.decode().split()
        return cls(producer, int(chunk), int(item))


class Line(NamedTuple):
    """One line of a producer's event log: of items from `first` on, and before `end`."""

    word: Word
    chunk: int
    first: int
    end: int
    # How long the event log is with it.
    size: int


class Fetch(NamedTuple):
    """Records that a reader received during the faults."""

    partition: int
    next_offset: int
    last_stable_offset: int
    # How long the event log of the transactional producer was afterwards.
    event_log_size: int
    sent: Sequence[Sent]


class Stored(NamedTuple):
    """A record and where it lies."""

    offset: int
    sent: Sent


@dataclass(frozen=True)
class History:
    """Everything that was written down."""

    event_logs: Mapping[str, Sequence[Line]]
    # The one that has transactions.
    transactional: str
    # By partition: what readers at read_committed see when all is over, and what is there at all.
    committed: Sequence[Sequence[Stored]]
    everything: Sequence[Sequence[Stored]]
    fetches: Sequence[Fetch]

    def acknowledged(self) -> Iterator[Sent]:
        """The records of which their producer was told that they count."""
        for producer, lines in self.event_logs.items():
            for line in lines:
                if line.word == "done":
                    for item in range(line.first, line.end):
                        yield Sent(producer, line.chunk, item)

    def faults(self) -> list[str]:
        """Return the violated rules."""
        rules = (lost, repeated, out_of_order, torn, aborted, other_for_readers, past_the_last_stable_offset)
        return [
            f"{rule.__name__}: {fault}" for rule in rules for fault in itertools.islice(rule(self), SHOWN)
        ]


def lines_of(event_log: Path) -> list[Line]:
    """All whole lines."""
    found: list[Line] = []
    size = 0
    for line in event_log.read_bytes().splitlines(keepends=True):
        size += len(line)
        if line.endswith(b"\n"):
            said, *numbers = line.decode().split()
            (word,) = (each for each in get_args(Word) if each == said)
            chunk, first, end = map(int, numbers)
            found.append(Line(word, chunk, first, end, size))
    return found


def lost(history: History) -> Iterator[str]:
    """Acknowledged, and not there."""
    there = {each.sent for partition in history.committed for each in partition}
    yield from (str(sent) for sent in history.acknowledged() if sent not in there)


def repeated(history: History) -> Iterator[str]:
    """Return chunks that are in the log more than once, also where no reader sees them."""
    count = Counter(each.sent for partition in history.everything for each in partition)
    yield from (f"{sent} {times} times" for sent, times in count.items() if times > 1)


def out_of_order(history: History) -> Iterator[str]:
    """
    A producer's records in another order than sent. After a kill an idempotent producer is another one, and what it
    left on its way may come late; one with a transactional id is fenced first.
    """
    for partition, stored in enumerate(history.everything):
        last: dict[tuple[str, int], tuple[int, int]] = {}
        for offset, sent in stored:
            life = 0 if sent.producer == history.transactional else sent.chunk // CHUNKS_OF_A_LIFE
            key = (sent.chunk, sent.item)
            if last.get((sent.producer, life), key) > key:
                yield f"{sent} at offset {offset} of partition {partition} is late"
            last[sent.producer, life] = key


def torn(history: History) -> Iterator[str]:
    """A part of a transaction is seen."""
    whole = _chunks(history.transactional, history.everything)
    for chunk, seen in _chunks(history.transactional, history.committed).items():
        if seen != whole[chunk]:
            yield f"{len(seen)} of {len(whole[chunk])} records of {chunk}"


def aborted(history: History) -> Iterator[str]:
    """A reader saw, then or later, what its producer had aborted, or had not begun to commit."""
    lines = history.event_logs[history.transactional]
    may_be_seen = {line.chunk for line in lines if line.word == "commit"}
    seen = [each.sent for partition in history.committed for each in partition]
    for sent in itertools.chain(seen, *(fetch.sent for fetch in history.fetches)):
        if sent.producer == history.transactional and sent.chunk not in may_be_seen:
            yield str(sent)


def other_for_readers(history: History) -> Iterator[str]:
    """The reader during the faults got something else than a reader gets afterwards."""
    for partition, stored in enumerate(history.committed):
        read = [sent for fetch in history.fetches if fetch.partition == partition for sent in fetch.sent]
        if read != [each.sent for each in stored]:
            yield f"{len(read)} records of partition {partition}, and {len(stored)} afterwards"


def past_the_last_stable_offset(history: History) -> Iterator[str]:
    """A reader came behind the begin of a transaction before its end was asked for, whatever the server said then."""
    lines = history.event_logs[history.transactional]
    begins = [_first_offsets(history.transactional, stored) for stored in history.everything]
    ends = {line.chunk: line.size for line in reversed(lines) if line.word in ("commit", "abort")}
    lives = {line.chunk // CHUNKS_OF_A_LIFE: line.size for line in lines if line.word == "life"}
    for partition, of_chunks in enumerate(begins):
        fetches = iter([fetch for fetch in history.fetches if fetch.partition == partition])
        fetch = next(fetches, None)
        for chunk, offset in of_chunks.items():
            # Transactions of one producer follow each other, and so do fetches.
            while fetch is not None and fetch.next_offset <= offset:
                fetch = next(fetches, None)
            # Where its producer was killed, the next life ended it.
            end = ends.get(chunk) or lives[chunk // CHUNKS_OF_A_LIFE + 1]
            if fetch is not None and fetch.event_log_size < end:
                yield f"a reader was at {fetch.next_offset} of partition {partition}, and {chunk} was open at {offset}"
    for fetch in history.fetches:
        if fetch.next_offset > fetch.last_stable_offset:
            yield f"a reader was sent to {fetch.next_offset}, and {fetch.last_stable_offset} is stable"


def _chunks(producer: str, partitions: Sequence[Sequence[Stored]]) -> dict[int, set[int]]:
    """The items of each chunk."""
    found: dict[int, set[int]] = defaultdict(set)
    for stored in partitions:
        for _, sent in stored:
            if sent.producer == producer:
                found[sent.chunk].add(sent.item)
    return found


def _first_offsets(producer: str, stored: Sequence[Stored]) -> dict[int, int]:
    """Return the first offset of each chunk in a partition."""
    found: dict[int, int] = {}
    for offset, sent in stored:
        if sent.producer == producer:
            found.setdefault(sent.chunk, offset)
    return found
