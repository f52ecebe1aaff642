"""`rota groups lag`: uncommitted records of groups by partition, and their age."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rota.records import TopicPartition
from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.model import Group
from rota_cli.clusters.port import Cluster
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.group_selection import GroupSelection
from rota_cli.commands.groups import NO_GROUPS
from rota_cli.commands.queries import measure_lag
from rota_cli.diagnosis.lag import PartitionLag, summarize, total
from rota_cli.output.console import print_err
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_data, print_list

COLUMNS = ("topic", "partition", "committed", "start", "end", "lag_records", "lag_seconds", "owner")


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Lag of one group. `ages_s` has the age in seconds of the first uncommitted record of each partition that has one."""

    group: str
    partitions: Sequence[PartitionLag]
    ages_s: Mapping[TopicPartition, float]

    @property
    def oldest_s(self) -> float | None:
        """Age of the oldest uncommitted record."""
        return max(self.ages_s.values(), default=None)

    def rows(self) -> list[Row]:
        """Return an output row for each partition."""
        return [_row(each, self.ages_s.get(each.partition)) for each in self.partitions]

    def data(self) -> Row:
        """Return the group's output for programs."""
        records = total(self.partitions)
        return {
            "group": self.group,
            "lag_records": records,
            "lag_seconds": None if records is None else self.oldest_s or 0.0,
            "unknown_partitions": sum(each.records is None for each in self.partitions),
            "partitions": self.rows(),
        }


@with_flags
def lag(
    flags: ConnectionFlags,
    selection: GroupSelection,
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed",
            help="Count up to the last stable offset, as consumers with isolation.level=read_committed do.",
        ),
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the lag of groups by partition: the number of uncommitted records, and the age of the first in seconds."""
    with flags.open() as cluster:
        found = [
            _measure(cluster, group, read_committed=read_committed) for group in selection.describe(cluster)
        ]
    if output is not OutputFormat.TABLE:
        data = [each.data() for each in found]
        print_data(data[0] if selection.is_single else data, output)
    elif selection.is_single:
        group = found[0].group
        none = f"group {group} has no committed offsets and no topics"
        print_list(found[0].rows(), output, COLUMNS, none=none)
    else:
        rows = [{"group": each.group, **row} for each in found for row in each.rows()]
        none = "no group has committed offsets or topics" if found else NO_GROUPS
        print_list(rows, output, ("group", *COLUMNS), none=none)
    if output is OutputFormat.TABLE:
        for each in found:
            print_err(summarize(each.group, each.partitions, each.oldest_s))


def _measure(cluster: Cluster, group: Group, *, read_committed: bool) -> GroupLag:
    found = measure_lag(cluster, group, read_committed=read_committed)
    firsts = {each.partition: each.first_uncommitted for each in found if each.first_uncommitted is not None}
    timestamps = cluster.records.timestamps(firsts, read_committed=read_committed)
    now_ms = system_clocks().now_ms()
    # If only control markers are uncommitted, there is no record whose age could be shown.
    ages_s = {
        partition: max(now_ms - timestamps[partition], 0) / 1000 if partition in timestamps else 0.0
        for partition in firsts
    }
    return GroupLag(group.group, found, ages_s)


def _row(lag: PartitionLag, age_s: float | None) -> Row:
    read_up = 0.0 if lag.records == 0 else None
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed": lag.committed,
        "start": None if lag.log_range is None else lag.log_range.start,
        "end": None if lag.log_range is None else lag.log_range.end,
        "lag_records": lag.records,
        "lag_seconds": read_up if age_s is None else round(age_s, 3),
        "owner": lag.owner,
    }
