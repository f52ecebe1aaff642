"""Compute a group's lag from committed offsets, log ranges and owners. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.records import TopicPartition
from rota_cli.clusters.model import Committed, Group, OffsetRange, count_lag
from rota_cli.output.units import pluralize


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of one partition; None means unknown and never counts as zero."""

    partition: TopicPartition
    committed: int | None
    log_range: OffsetRange | None
    owner: str | None

    @property
    def records(self) -> int | None:
        """Number of uncommitted records."""
        if self.committed is None or self.log_range is None:
            return None
        return count_lag(self.committed, self.log_range)

    @property
    def first_uncommitted(self) -> int | None:
        """First uncommitted offset; None if all records are committed."""
        if not self.records or self.committed is None or self.log_range is None:
            return None
        return max(self.committed, self.log_range.start)


def related_topics(group: Group, committed: Iterable[TopicPartition]) -> set[str]:
    """Topics that the group subscribes to, owns partitions of, or has committed offsets of."""
    subscribed = {
        topic for member in group.members if member.subscription for topic in member.subscription.topics
    }
    owned = {partition.topic for member in group.members for partition in member.partitions}
    return subscribed | owned | {partition.topic for partition in committed}


def owners_by_partition(group: Group) -> dict[TopicPartition, str]:
    """Map each partition to its owner's instance id or member id."""
    return {
        partition: member.instance_id or member.member_id
        for member in group.members
        for partition in member.partitions
    }


def compute_lags(
    group: Group, committed: Mapping[TopicPartition, Committed], ranges: Mapping[TopicPartition, OffsetRange]
) -> list[PartitionLag]:
    """Compute the lag of all partitions with a log, a committed offset or an owner."""
    owners = owners_by_partition(group)
    return [
        PartitionLag(
            partition,
            committed[partition].offset if partition in committed else None,
            ranges.get(partition),
            owners.get(partition),
        )
        for partition in sorted({*ranges, *committed, *owners})
    ]


def total(found: Sequence[PartitionLag]) -> int | None:
    """Sum over all partitions; None if one is unknown, because a partial sum would be too low."""
    known = [lag.records for lag in found if lag.records is not None]
    return sum(known) if len(known) == len(found) else None


def summarize(group_id: str, found: Sequence[PartitionLag], oldest_s: float | None) -> str:
    """Summarize the lag of the whole group in one line."""
    known = [lag.records for lag in found if lag.records is not None]
    if found and not known:
        return f"the lag of group {group_id} is unknown: it has no committed offsets in its topics"
    said = f"group {group_id} has a lag of {pluralize(sum(known), 'record')}"
    if oldest_s is not None:
        said += f", the oldest is {oldest_s:.1f} s old"
    unknown = len(found) - len(known)
    if unknown:
        verb = "s are" if unknown > 1 else " is"
        said += f"; {unknown} partition{verb} not counted (no committed offset, or no topic)"
    return said
