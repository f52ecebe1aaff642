"""The plan of an offset reset: old and new offset of each partition, its hash, and the plan that undoes it."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rota_operator.overview.assignment import Partition

# Partitions of one plan; the limit of a group.
PARTITIONS_MAX = 200_000


class ResetRefused(Exception):
    """A reset that cannot be executed as it is specified; the message is one sentence with what to do. Nothing has changed."""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """Reset of one partition."""

    partition: Partition
    # None: no committed offset.
    old: int | None
    new: int
    # Timestamps in ms of the records at the two offsets; None: unknown, or there is no such record.
    old_time_ms: int | None = None
    new_time_ms: int | None = None
    # Why `new` is not the target; empty: it is.
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    A reset of one group.

    Invariant: `rows` are sorted by partition, each partition once. Records are counted by offsets.
    """

    group_id: str
    rows: tuple[PlannedOffset, ...]
    # Numbers of records that are not consumed, and that are consumed again.
    skipped: int
    repeated: int
    # By topic of the rows, as far as the engine has ids: offsets are not applied to a topic that was made anew.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def offsets(self) -> Mapping[Partition, int]:
        """New offsets."""
        return {row.partition: row.new for row in self.rows}

    @property
    def hash(self) -> str:
        """Hash of everything that an execution depends on."""
        digest = hashlib.sha256(self.group_id.encode())
        for topic, topic_id in sorted(self.topic_ids.items()):
            digest.update(f"\n{topic}={topic_id}".encode())
        for row in self.rows:
            old = "" if row.old is None else row.old
            digest.update(f"\n{row.partition.topic},{row.partition.number},{old},{row.new}".encode())
        return digest.hexdigest()


def undo_of(plan: Plan, committed: Mapping[Partition, int]) -> Plan:
    """
    Return the plan that brings back the offsets `committed` after `plan` is executed.

    Partitions without a committed offset are left out: none can be taken back.
    """
    rows = tuple(
        PlannedOffset(row.partition, row.new, committed[row.partition], row.new_time_ms)
        for row in plan.rows
        if row.partition in committed
    )
    skipped = sum(max(0, row.new - (row.old or 0)) for row in rows)
    repeated = sum(max(0, (row.old or 0) - row.new) for row in rows)
    return Plan(plan.group_id, rows, skipped, repeated, topic_ids_of(rows, plan.topic_ids))


def topic_ids_of(rows: Iterable[PlannedOffset], topic_ids: Mapping[str, str]) -> Mapping[str, str]:
    """Return the ids of the topics in the rows."""
    topics = {row.partition.topic for row in rows}
    return {topic: topic_id for topic, topic_id in topic_ids.items() if topic in topics}


def shown(partitions: Iterable[Partition], shown_max: int = 3) -> str:
    """Return the first partitions by name, and the number of the others."""
    found = sorted(partitions)
    more = len(found) - shown_max
    names = ", ".join(each.text for each in found[:shown_max])
    return f"{names} and {more} more" if more > 0 else names
