"""Queries that several commands share."""

from collections.abc import Iterable, Iterator

from rota.records import TopicPartition
from rota_cli.clusters.model import Group
from rota_cli.clusters.port import Cluster
from rota_cli.diagnosis.lag import PartitionLag, compute_lags, related_topics
from rota_cli.diagnosis.stalled import describe_stalled
from rota_cli.errors import unknown_group


def require_group(cluster: Cluster, group_id: str) -> Group:
    """Describe the group; raise NotFound for an unknown one."""
    group = cluster.groups.describe(group_id)
    if not group.exists:
        raise unknown_group(group_id, group.coordinator or "the brokers")
    return group


def partition_counts(cluster: Cluster) -> dict[str, int]:
    """Count the partitions of each topic."""
    return {topic.name: topic.partitions for topic in cluster.records.topics()}


def measure_lag(cluster: Cluster, group: Group, *, read_committed: bool = False) -> list[PartitionLag]:
    """Measure a group's lag. Committed offsets are read before log ends, so lag is never understated."""
    committed = cluster.groups.offsets(group.group)
    wanted = related_topics(group, committed)
    there = [
        TopicPartition(topic.name, number)
        for topic in (cluster.records.topics() if wanted else ())
        if topic.name in wanted
        for number in range(topic.partitions)
    ]
    return compute_lags(group, committed, cluster.records.ranges(there, read_committed=read_committed))


def find_stalled(cluster: Cluster, group: Group, topics: dict[str, int]) -> list[str]:
    """Look up the committed offsets and the logs of all owned partitions; `topics` counts the partitions of each topic."""
    owned = {partition for member in group.members for partition in member.partitions}
    there = [each for each in sorted(owned) if each.partition < topics.get(each.topic, 0)]
    if not there:
        return []
    committed = cluster.groups.offsets(group.group)
    found = compute_lags(group, committed, cluster.records.ranges(there))
    return [*describe_stalled(group.group, found), *describe_unreadable(cluster, found)]


def describe_unreadable(cluster: Cluster, found: Iterable[PartitionLag]) -> Iterator[str]:
    """Describe each owned partition whose next batch is unreadable."""
    firsts = {
        each.partition: each.first_uncommitted
        for each in found
        if each.owner is not None and each.first_uncommitted is not None
    }
    for (topic, number), behind in sorted(cluster.records.unreadable(firsts).items()):
        yield (
            f"{topic}[{number}]: the batch at the committed offset cannot be read, and the partition is stuck there: skip it with `rota topics delete-records {topic} --partition {number} --before {behind}`"
        )
