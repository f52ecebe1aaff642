"""Parse the commands of a JSON member; a line that is no valid command is refused with a message."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rota_sidecar.config.parsing import pattern_problem, topics_problem
from rota_sidecar.core.member.config import Subscription
from rota_sidecar.core.member.partitions import Partition

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
# What a coordinator takes beside an offset.
METADATA_UNITS_MAX = 4_096
# What one request may be about.
PARTITIONS_MAX = 10_000
TOPICS_MAX = 10_000

Kind = TypeVar("Kind")
Id = str | int | None


class InvalidCommand(Exception):
    """A line that is refused and changes nothing; `asked` is its id."""

    def __init__(self, message: str, asked: Id = None) -> None:
        super().__init__(message)
        self.asked = asked


@dataclass(frozen=True, slots=True)
class AskedOffset:
    """One of the offsets to commit; without a tenure that in which the partition is held now."""

    partition: Partition
    offset: int
    metadata: str
    leader_epoch: int
    tenure: int | None


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these."""

    asked: Id
    offsets: Sequence[AskedOffset]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch the committed offsets of these partitions; None: of all that the member owns."""

    asked: Id
    partitions: Sequence[Partition] | None


@dataclass(frozen=True, slots=True)
class Revoked:
    """The application has released the partitions of this revocation."""

    revocation: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Other topics."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Offer:
    """Other strategies."""

    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rates:
    """Arrival rates, in records per second, by topic and partition."""

    rates: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class Join:
    """Join the group again, after a `leave`."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group; with `final` the process ends as well."""

    final: bool
    within_ms: int | None
    leave_static: bool


Command = Commit | Fetch | Revoked | Subscribe | Offer | Rates | Join | Leave


class Fields:
    """Read the fields of a JSON object by name and type; `end` refuses fields that were not read."""

    def __init__(self, held: object, where: str) -> None:
        if not isinstance(held, dict):
            raise InvalidCommand(f"{where} is no object")
        self._held = held
        self._where = where
        self._left = set(held)

    def text(self, name: str, otherwise: str | None = None) -> str:
        """A string that can be sent."""
        found = self._of(name, str, otherwise)
        if not found.isascii() and found != found.encode(errors="replace").decode():
            raise InvalidCommand(f"{name} of {self._where} has half a character")
        return found

    def number(self, name: str, lowest: int, highest: int, otherwise: int | None = None) -> int:
        """A whole number within bounds."""
        found = self._of(name, int, otherwise)
        if not lowest <= found <= highest:
            raise InvalidCommand(f"{name} of {self._where} is {found}: give {lowest} to {highest}")
        return found

    def rate(self, name: str) -> float:
        """A number that is not negative, nor beyond all bounds."""
        found = self._held.get(name)
        self._left.discard(name)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < INT64_MAX:
            raise InvalidCommand(f"{name} of {self._where} is no rate: give a number of records a second")
        return float(found)

    def switch(self, name: str) -> bool:
        """True or false; false when it is not there."""
        return self._of(name, bool, False)  # noqa: FBT003  the value itself

    def has(self, name: str) -> bool:
        """Return true if the object has the field."""
        return name in self._held

    def asked(self) -> Id:
        """Read the id that the answer repeats."""
        self._left.discard("id")
        found = self._held.get("id")
        if isinstance(found, bool) or not isinstance(found, str | int | None):
            raise InvalidCommand(f"id of {self._where} is neither a text nor a number")
        return found

    def each(self, name: str, most: int) -> Sequence[object]:
        """The parts of a list."""
        found = self._of(name, list, None)
        if len(found) > most:
            raise InvalidCommand(f"{name} of {self._where} has {len(found)} parts: give {most} at most")
        return found

    def end(self) -> None:
        """Refuse fields that were not read."""
        if self._left:
            raise InvalidCommand(f"{self._where} has no {', '.join(sorted(self._left))}")

    def _of(self, name: str, kind: type[Kind], otherwise: Kind | None) -> Kind:
        self._left.discard(name)
        found = self._held.get(name, otherwise)
        # True is an int too.
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise InvalidCommand(f"{name} of {self._where} is missing, or not what it should be")
        return found


def parsed(line: bytes) -> Command:
    """The command. Raises InvalidCommand."""
    try:
        held = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidCommand("the line is no JSON") from None
    fields = Fields(held, "the line")
    asked = fields.asked()
    try:
        return _command(fields, asked)
    except InvalidCommand as bad:
        raise InvalidCommand(str(bad), asked) from None


def _command(fields: Fields, asked: Id) -> Command:
    name = fields.text("command")
    read = READERS.get(name)
    if read is None:
        raise InvalidCommand(f"there is no command {name}")
    command = read(fields, asked)
    fields.end()
    return command


def _commit(fields: Fields, asked: Id) -> Commit:
    parts = fields.each("offsets", PARTITIONS_MAX)
    return Commit(asked, [_offset(Fields(part, "an offset")) for part in parts])


def _offset(fields: Fields) -> AskedOffset:
    metadata = fields.text("metadata", "")
    if len(metadata.encode("utf-16-le")) // 2 > METADATA_UNITS_MAX:
        raise InvalidCommand(f"metadata of an offset is longer than {METADATA_UNITS_MAX} characters")
    offset = AskedOffset(
        partition=_partition(fields),
        offset=fields.number("offset", 0, INT64_MAX),
        metadata=metadata,
        leader_epoch=fields.number("leader_epoch", -1, INT32_MAX, -1),
        tenure=fields.number("tenure", 0, INT64_MAX) if fields.has("tenure") else None,
    )
    fields.end()
    return offset


def _partition(fields: Fields) -> Partition:
    topic = fields.text("topic")
    wrong = topics_problem([topic])
    if wrong:
        raise InvalidCommand(wrong)
    return Partition(topic, fields.number("partition", 0, INT32_MAX))


def _fetch(fields: Fields, asked: Id) -> Fetch:
    if not fields.has("partitions"):
        return Fetch(asked, None)
    found = []
    for part in fields.each("partitions", PARTITIONS_MAX):
        partition = Fields(part, "a partition")
        found.append(_partition(partition))
        partition.end()
    return Fetch(asked, found)


def _subscribe(fields: Fields, _: Id) -> Subscribe:
    if fields.has("topics") == fields.has("pattern"):
        raise InvalidCommand("give either topics or pattern")
    if fields.has("pattern"):
        pattern = fields.text("pattern")
        wrong = pattern_problem(pattern) if pattern else "the pattern is empty"
        subscription = Subscription(pattern=pattern)
    else:
        topics = _texts(fields, "topics")
        wrong = topics_problem(topics) if topics else "name at least one topic"
        subscription = Subscription(topics=tuple(topics))
    if wrong:
        raise InvalidCommand(wrong)
    return Subscribe(subscription)


def _offer(fields: Fields, _: Id) -> Offer:
    return Offer(_texts(fields, "names"))


def _texts(fields: Fields, name: str) -> Sequence[str]:
    return [Fields({name: part}, "the line").text(name) for part in fields.each(name, TOPICS_MAX)]


def _rates(fields: Fields, _: Id) -> Rates:
    rates: dict[str, dict[int, float]] = {}
    for part in fields.each("rates", PARTITIONS_MAX):
        each = Fields(part, "a rate")
        partition = _partition(each)
        rates.setdefault(partition.topic, {})[partition.number] = each.rate("rate")
        each.end()
    return Rates(rates)


def _revoked(fields: Fields, _: Id) -> Revoked:
    return Revoked(fields.number("revocation", 0, INT64_MAX))


def _join(_: Fields, __: Id) -> Join:
    return Join()


def _leave(fields: Fields, _: Id) -> Leave:
    return _end(fields, final=False)


def _stop(fields: Fields, _: Id) -> Leave:
    return _end(fields, final=True)


def _end(fields: Fields, *, final: bool) -> Leave:
    within_ms = fields.number("within_ms", 0, INT32_MAX) if fields.has("within_ms") else None
    return Leave(final, within_ms, fields.switch("static"))


READERS: Mapping[str, Callable[[Fields, Id], Command]] = {
    "commit": _commit,
    "fetch": _fetch,
    "revoked": _revoked,
    "subscribe": _subscribe,
    "assignors": _offer,
    "rates": _rates,
    "join": _join,
    "leave": _leave,
    "stop": _stop,
}
