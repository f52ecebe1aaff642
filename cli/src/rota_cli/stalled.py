"""
Name the partitions of a group that have an owner and may not be read, from what the coordinator and the log show.

Settings of members (where they begin without an offset, their dead-letter topic) are not visible there: a remark names what is
visible, and the setting that decides.
"""

from collections.abc import Iterable, Iterator

from rota_cli.cluster import Cluster
from rota_cli.lagging import PartitionLag, lags, spoken_partitions
from rota_cli.values import Group


def stalled(cluster: Cluster, group: Group, topics: dict[str, int]) -> list[str]:
    """Look up the committed offsets and the logs of all owned partitions; `topics` counts the partitions of each topic."""
    owned = {partition for member in group.members for partition in member.partitions}
    there = [each for each in sorted(owned) if each.partition < topics.get(each.topic, 0)]
    if not there:
        return []
    committed = cluster.groups.offsets(group.group)
    found = lags(group, committed, cluster.records.ranges(there))
    return [*remarks(group.group, found), *unreadable(cluster, found)]


def unreadable(cluster: Cluster, found: Iterable[PartitionLag]) -> Iterator[str]:
    """One sentence for each owned partition whose next record nobody can read."""
    firsts = {
        each.partition: each.first_uncommitted
        for each in found
        if each.owner is not None and each.first_uncommitted is not None
    }
    for (topic, number), behind in sorted(cluster.records.unreadable(firsts).items()):
        yield (
            f"{topic}[{number}]: the batch at the committed offset cannot be read, and its partition stands still there: get "
            f"past it with `rota topics delete-records {topic} --partition {number} --before {behind}`"
        )


def remarks(group_id: str, found: Iterable[PartitionLag]) -> Iterator[str]:
    """
    One sentence for each reason, with all partitions that it is true of.

    >>> from rota.records import TopicPartition
    >>> from rota_cli.values import Range
    >>> lag = PartitionLag(TopicPartition("orders", 0), 1, Range(6, 9), "a")
    >>> next(remarks("shop", [lag]))[:69]
    'orders[0]: the committed offset is no longer in the log, its records '
    """
    owned = [each for each in found if each.owner is not None and each.there is not None]
    for holds, reason in REASONS:
        if named := [each.partition for each in owned if holds(each)]:
            yield f"{spoken_partitions(named)}: {reason}, or until `rota groups reset {group_id}` sets one"


def _is_expired(lag: PartitionLag) -> bool:
    return lag.committed is not None and lag.there is not None and lag.committed < lag.there.start


def _is_beyond(lag: PartitionLag) -> bool:
    return lag.committed is not None and lag.there is not None and lag.committed > lag.there.end


def _has_no_offset(lag: PartitionLag) -> bool:
    return lag.committed is None and lag.there is not None and lag.there.start < lag.there.end


NOWHERE_ELSE = (
    "a member that is set to begin nowhere else (--on-offset-expired=none) stands still until it seeks"
)
EXPIRED = f"the committed offset is no longer in the log, its records are deleted: {NOWHERE_ELSE}"
BEYOND = f"the committed offset is beyond the end of the log: {NOWHERE_ELSE}"
NO_OFFSET = (
    "there are records, and nothing is committed: a member that keeps its offsets elsewhere goes on, one that is set to begin "
    "nowhere (auto_offset_reset=none) stands still until it seeks"
)
REASONS = ((_is_expired, EXPIRED), (_is_beyond, BEYOND), (_has_no_offset, NO_OFFSET))
