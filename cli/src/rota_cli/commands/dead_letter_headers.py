"""
Parse the records of a dead-letter topic: dead letters, and the replay markers of those that were replayed. Pure.

Sidecars and pipelines write dead letters with the headers `rota-dlq-…`. `rota dead-letters replay` writes a replay marker into the
same partition: a record without key and value whose header names the offsets of replayed dead letters before it. Records of
other clients may be there too, and nothing of them is believed.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rota.records import Headers, Record, TopicPartition
from rota_cli.errors import Failure

PREFIX = "rota-dlq-"
REPLAYED = PREFIX + "replayed"
# Of a dead letter that holds a batch of Rota's log which cannot be decoded, in place of a record.
UNDECODABLE = "rota-batch-codec"
NUMBER = re.compile(rb"[0-9]{1,19}")
RANGE = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Record that a dead letter is a copy of, and the failure."""

    partition: TopicPartition
    offset: int
    group: str
    reason: str
    # Number of deliveries when the record failed permanently.
    deliveries: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a dead-letter topic. Invariant: without an origin there is a problem."""

    partition: TopicPartition
    offset: int
    # Of the original record.
    timestamp_ms: int
    origin: Origin | None
    # The reason why it cannot be replayed; empty: it can.
    problem: str = ""
    is_replayed: bool = False


class ForeignHeadersError(ValueError):
    """Headers that no sidecar and no pipeline writes; the message says which."""


def dead_letter_of(record: Record) -> DeadLetter:
    """Parse a record. One with headers of another form is a dead letter with a problem."""
    partition = TopicPartition(record.topic, record.partition)
    try:
        origin = _origin(record.headers)
    except ForeignHeadersError as error:
        problem = f"not a dead letter of Rota: {error}"
        return DeadLetter(partition, record.offset, record.timestamp_ms, None, problem)
    problem = ""
    if origin.partition.topic == record.topic:
        problem = "its origin is the dead-letter topic itself"
    elif not origin.deliveries and any(name == UNDECODABLE for name, _ in record.headers):
        problem = "it holds a batch that cannot be decoded"
    return DeadLetter(partition, record.offset, record.timestamp_ms, origin, problem)


def own_headers(headers: Headers) -> Headers:
    """Return the headers of the original record."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


def _origin(headers: Headers) -> Origin:
    """Parse the origin. Raises ForeignHeadersError."""
    counts = Counter(name for name, _ in headers if name.startswith(PREFIX))
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise ForeignHeadersError(f"the header {twice} is there twice")
    found = {name: value for name, value in headers if name.startswith(PREFIX)}
    topic = _text(found, "topic")
    if not topic:
        raise ForeignHeadersError(f"the header {PREFIX}topic is empty")
    return Origin(
        TopicPartition(topic, _number(found, "partition", INT32_MAX)),
        _number(found, "offset", INT64_MAX),
        _text(found, "group"),
        _text(found, "reason"),
        _number(found, "deliveries", INT32_MAX),
    )


def _value(headers: Mapping[str, bytes | None], name: str) -> bytes:
    value = headers.get(PREFIX + name)
    if value is None:
        raise ForeignHeadersError(f"the header {PREFIX}{name} is missing")
    return value


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    try:
        return _value(headers, name).decode()
    except UnicodeDecodeError:
        raise ForeignHeadersError(f"the header {PREFIX}{name} is not UTF-8 text") from None


def _number(headers: Mapping[str, bytes | None], name: str, maximum: int) -> int:
    value = _value(headers, name)
    if NUMBER.fullmatch(value) is None or int(value) > maximum:
        raise ForeignHeadersError(f"the header {PREFIX}{name} is not a number from 0 to {maximum}")
    return int(value)


def marker_of(offsets: Collection[int]) -> Headers:
    """
    Return the headers of a marker of these offsets.

    >>> marker_of([7, 3, 4])
    [('rota-dlq-replayed', b'3-4,7')]
    """
    runs: list[list[int]] = []
    for offset in sorted(offsets):
        if runs and runs[-1][1] == offset - 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return [(REPLAYED, text.encode())]


def marked_offsets(record: Record) -> list[range] | None:
    """
    Return the offsets that a marker names; None: the record is not a marker. Raises Failure for a marker of unknown form.

    A marker that is not understood ends the command: its dead letters would be replayed twice.
    """
    values = [value for name, value in record.headers if name == REPLAYED]
    if not values:
        return None
    found = [_range(text, record.offset) for text in (values[0] or b"").decode(errors="replace").split(",")]
    ranges = [each for each in found if each is not None]
    if len(values) > 1 or len(ranges) < len(found):
        raise Failure(
            f"{record.topic}[{record.partition}] at offset {record.offset}: the header {REPLAYED} has an unknown form: upgrade "
            "rota-cli, or see which client wrote the record"
        )
    return ranges


def _range(text: str, below: int) -> range | None:
    """Parse a range of offsets before the marker's own; None: it has another form."""
    match = RANGE.fullmatch(text)
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return range(first, last + 1) if first <= last < below else None
