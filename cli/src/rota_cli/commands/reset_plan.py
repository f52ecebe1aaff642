"""
Plan an offset reset from its target, committed offsets and log ranges. Pure.

A target that one partition cannot have fails the plan for all. An offset outside the log is replaced by the nearest bound,
with a remark.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rota.records import TopicPartition
from rota_cli.clusters.model import NO_OFFSET, Committed, OffsetRange, Topic
from rota_cli.errors import Failure, NotFound, WrongUsage
from rota_cli.output.units import format_partitions


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """Target: the log start offset."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Target: the log end offset."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """Target: the committed offset, also where the log does not have it; the log end without a committed offset."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """Target: the same offset in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """Target: the first record at or after a time; the log end if there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Target: the committed offset plus this number of records; negative moves back."""

    by: int


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """Target: an offset for each partition, such as those of a file."""

    offsets: Mapping[TopicPartition, int]


Target = ToEarliest | ToLatest | ToCurrent | ToOffset | ToTimestamp | ShiftBy | ToOffsets


@dataclass(frozen=True, slots=True)
class KnownOffsets:
    """Input of a plan. `at_time` is filled for `ToTimestamp` only."""

    committed: Mapping[TopicPartition, Committed]
    ranges: Mapping[TopicPartition, OffsetRange]
    at_time: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """Old and new offset of a partition; `old` is None without a committed offset."""

    partition: TopicPartition
    old: int | None
    new: int
    remark: str = ""

    @property
    def by(self) -> int | None:
        """Number of records skipped; negative if consumed again."""
        return None if self.old is None else self.new - self.old


def plan(target: Target, partitions: Collection[TopicPartition], known: KnownOffsets) -> list[OffsetChange]:
    """Compute the new offset of each partition."""
    return [_change(target, partition, known) for partition in sorted(partitions)]


def _change(target: Target, partition: TopicPartition, known: KnownOffsets) -> OffsetChange:
    log_range = known.ranges[partition]
    committed = known.committed.get(partition)
    old = None if committed is None else committed.offset
    match target:
        case ToEarliest():
            return OffsetChange(partition, old, log_range.start)
        case ToLatest():
            return OffsetChange(partition, old, log_range.end)
        case ToCurrent():
            return _current(partition, old, log_range)
        case ToTimestamp():
            return _at_time(partition, old, known.at_time[partition], log_range)
        case ToOffset(wanted):
            return _clamped(partition, old, wanted, log_range)
        case ToOffsets(offsets):
            return _clamped(partition, old, offsets[partition], log_range)
        case ShiftBy(by):
            return _shifted(partition, old, by, log_range)


def _current(partition: TopicPartition, old: int | None, log_range: OffsetRange) -> OffsetChange:
    if old is None:
        return OffsetChange(partition, None, log_range.end, "no committed offset; using the log end")
    return OffsetChange(partition, old, old)


def _shifted(partition: TopicPartition, old: int | None, by: int, log_range: OffsetRange) -> OffsetChange:
    if old is None:
        raise Failure(
            f"{format_partitions([partition])} has no committed offset to shift: exclude it, or use --to-earliest, "
            "--to-latest or --to-offset"
        )
    return _clamped(partition, old, old + by, log_range)


def _at_time(partition: TopicPartition, old: int | None, found: int, log_range: OffsetRange) -> OffsetChange:
    if found == NO_OFFSET:
        return OffsetChange(
            partition, old, log_range.end, "no record at or after this time; using the log end"
        )
    return OffsetChange(partition, old, log_range.clamp(found))


def _clamped(partition: TopicPartition, old: int | None, wanted: int, log_range: OffsetRange) -> OffsetChange:
    new = log_range.clamp(wanted)
    if new == wanted:
        return OffsetChange(partition, old, new)
    bound = "end" if wanted > log_range.end else "start"
    return OffsetChange(partition, old, new, f"{wanted} is out of range; using the log {bound}")


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Value of `--topic`: a topic, and some of its partitions or all."""

    topic: str
    numbers: Sequence[int] = ()


def parse_selection(text: str) -> TopicSelection:
    """
    Parse TOPIC or TOPIC:N,N.

    >>> parse_selection("orders:0,2")
    TopicSelection(topic='orders', numbers=(0, 2))
    """
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not all(number.isdecimal() for number in numbers.split(","))):
        raise WrongUsage(f"--topic {text}: expected TOPIC, or TOPIC:0,2 for some of its partitions")
    return TopicSelection(topic, tuple(int(number) for number in numbers.split(",")) if colon else ())


def select_partitions(
    choices: Sequence[TopicSelection],
    topics: Sequence[Topic],
    committed: Collection[TopicPartition],
    *,
    shifts: bool,
) -> list[TopicPartition]:
    """
    Return the partitions to reset; topics that no longer exist are left out.

    For a shift, those with a committed offset, unless partitions are named by number.
    """
    counts = {topic.name: topic.partitions for topic in topics}
    found: list[TopicPartition] = []
    for choice in choices:
        count = counts.get(choice.topic, 0)
        unknown = [number for number in choice.numbers if number >= count]
        if unknown:
            raise NotFound(
                f"topic {choice.topic} has no partition {unknown[0]} (it has {count}): see `rota topics describe`"
            )
        every = [TopicPartition(choice.topic, number) for number in choice.numbers or range(count)]
        found += [each for each in every if choice.numbers or not shifts or each in committed]
    return list(dict.fromkeys(found))
