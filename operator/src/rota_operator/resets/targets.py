"""
Resolves the target of a reset into a plan. The shell looks up what `Lookup` holds, and passes times as milliseconds.

An offset outside of the log is replaced by the nearest one, with a remark; a target that a partition cannot have refuses the whole
reset.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rota_operator.overview.assignment import Partition
from rota_operator.resets.plan import PARTITIONS_MAX, Plan, PlannedOffset, ResetRefused, shown, topic_ids_of

NO_OFFSET = -1


class LogRange(NamedTuple):
    """Readable offsets of a partition: the first one, and the end (exclusive)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The log start."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The log end."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """The same offset in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after a time; the log end if there is none."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """The committed offset moved by this number of records; a negative number moves it back."""

    records: int


@dataclass(frozen=True, slots=True)
class ToPlan:
    """The new offsets of another plan."""

    plan: Plan


Target: TypeAlias = ToEarliest | ToLatest | ToOffset | ToTime | ShiftBy | ToPlan


@dataclass(frozen=True, slots=True)
class Lookup:
    """Offsets of the partitions of the reset's topics, as the engine has them now."""

    group_id: str
    ranges: Mapping[Partition, LogRange]
    committed: Mapping[Partition, int]
    # For ToTime: the first offset at or after the time; absent or NO_OFFSET: there is none.
    at_time: Mapping[Partition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def topics_of(topics: Collection[str], consumed: Collection[str]) -> Collection[str]:
    """Return the topics of a reset: the named ones, else all that the group consumes. Raises ResetRefused."""
    foreign = sorted(set(topics) - set(consumed))
    if foreign:
        raise ResetRefused(
            f"spec.offsets.reset.topics: group does not consume topic {foreign[0]}, or the topic does not exist; remove it"
        )
    if not consumed:
        raise ResetRefused("the group's topics do not exist, so there is no offset to reset; create them")
    return topics or consumed


def time_problem(path: str, at_ms: int, now_ms: int) -> None:
    """Refuse a time in the future: it would skip records that are not written yet. Raises ResetRefused."""
    if at_ms > now_ms:
        raise ResetRefused(
            f"spec.offsets.reset.to.{path} is in the future; use a time that has passed, or latest"
        )


def resolve(target: Target, lookup: Lookup) -> Plan:
    """Return the plan of a reset. Raises ResetRefused."""
    if len(lookup.ranges) > PARTITIONS_MAX:
        raise ResetRefused(
            f"the reset has {len(lookup.ranges)} partitions, more than {PARTITIONS_MAX}; name fewer topics in "
            "spec.offsets.reset.topics"
        )
    match target:
        case ShiftBy():
            wanted = {
                each: at + target.records for each, at in lookup.committed.items() if each in lookup.ranges
            }
        case ToPlan():
            _check_against(target.plan, lookup)
            wanted = {each: at for each, at in target.plan.offsets.items() if each in lookup.ranges}
        case _:
            wanted = {each: _wanted(target, each, lookup) for each in lookup.ranges}
    if not wanted:
        raise ResetRefused(
            "no partition of the reset has a committed offset to start from; use earliest, latest, datetime or offset"
            if isinstance(target, ShiftBy)
            else "the reset has no partitions: the topics have none, or the plan names none of them"
        )
    rows = tuple(_row(target, each, wanted[each], lookup) for each in sorted(wanted))
    moves = [_records_moved(row, lookup) for row in rows]
    return Plan(
        lookup.group_id,
        rows,
        skipped=sum(each for each in moves if each > 0),
        repeated=-sum(each for each in moves if each < 0),
        topic_ids=topic_ids_of(rows, lookup.topic_ids),
    )


def current_offsets(plan: Plan, lookup: Lookup) -> Mapping[Partition, int]:
    """
    Return the new offsets of a plan for the log of now: records that retention has deleted since are left out.

    Raises ResetRefused for a plan whose topics are not those of now.
    """
    _check_against(plan, lookup)
    return {each: max(offset, lookup.ranges[each].start) for each, offset in plan.offsets.items()}


def _check_against(plan: Plan, lookup: Lookup) -> None:
    if plan.group_id != lookup.group_id:
        raise ResetRefused(
            f"the plan is one of group {plan.group_id}, not of {lookup.group_id}; use a plan of this group"
        )
    anew = sorted(
        topic
        for topic, topic_id in plan.topic_ids.items()
        if lookup.topic_ids.get(topic, topic_id) != topic_id
    )
    if anew:
        raise ResetRefused(
            f"topic {anew[0]} was deleted and created again after the plan was made; make a new dry run with another requestId"
        )
    unknown = [row.partition for row in plan.rows if row.partition not in lookup.ranges]
    if unknown:
        raise ResetRefused(
            f"the plan has partitions that do not exist, or that the reset does not include: {shown(unknown)}; make a new "
            "dry run with another requestId"
        )
    past_end = [row for row in plan.rows if row.new > lookup.ranges[row.partition].end]
    if past_end:
        first = past_end[0]
        raise ResetRefused(
            f"the plan sets {first.partition.text} to {first.new}, after the log end "
            f"{lookup.ranges[first.partition].end}; make a new dry run with another requestId"
        )


def _wanted(target: ToEarliest | ToLatest | ToOffset | ToTime, partition: Partition, lookup: Lookup) -> int:
    log = lookup.ranges[partition]
    match target:
        case ToEarliest():
            return log.start
        case ToLatest():
            return log.end
        case ToOffset(offset):
            return offset
        case ToTime():
            found = lookup.at_time.get(partition, NO_OFFSET)
            return log.end if found == NO_OFFSET else found


def _row(target: Target, partition: Partition, wanted: int, lookup: Lookup) -> PlannedOffset:
    log, old = lookup.ranges[partition], lookup.committed.get(partition)
    new = min(max(wanted, log.start), log.end)
    remark = ""
    if new != wanted:
        remark = f"{wanted} is out of range; using the log {'end' if wanted > log.end else 'start'}"
    elif isinstance(target, ToTime) and lookup.at_time.get(partition, NO_OFFSET) == NO_OFFSET:
        remark = "no record at or after this time; using the log end"
    return PlannedOffset(partition, old, new, remark=remark)


def _records_moved(row: PlannedOffset, lookup: Lookup) -> int:
    """Return how many records are skipped; negative: consumed again. 0 without a committed offset: the start is not known."""
    if row.old is None:
        return 0
    return row.new - max(row.old, lookup.ranges[row.partition].start)
