"""`rota groups`: lists and describes groups, their members, offsets and lag; deletes groups."""

from typing import Annotated

import typer

from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.model import Group, Member
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.queries import measure_lag, require_group
from rota_cli.diagnosis.lag import PartitionLag, summarize, total
from rota_cli.errors import Failure
from rota_cli.output.console import print_err, print_out
from rota_cli.output.render import (
    OutputFormat,
    OutputOption,
    Row,
    print_data,
    print_list,
    render_fields,
    render_table,
)
from rota_cli.output.units import by_topic, format_partitions

groups = typer.Typer(help="Inspect, watch, reset and delete groups.", no_args_is_help=True)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Group ID.")]
FIELDS = ("group", "state", "protocol", "strategy", "generation", "incarnation", "leader", "coordinator")
MEMBER_COLUMNS = ("member_id", "instance_id", "client_id", "host", "leader", "partitions", "assigned")
LAG_COLUMNS = ("topic", "partition", "committed", "start", "end", "lag_records", "lag_seconds", "owner")


@groups.command("list")
@with_flags
def list_groups(flags: ConnectionFlags, output: OutputOption = OutputFormat.TABLE) -> None:
    """List groups and their states."""
    with flags.open() as cluster:
        found = cluster.groups.list_all()
    rows: list[Row] = [
        {"group": each.group, "state": each.state, "protocol": each.protocol_type} for each in found
    ]
    print_list(
        rows,
        output,
        ("group", "state", "protocol"),
        none="no groups found: a group is created when its first member joins",
    )


@groups.command()
@with_flags
def describe(flags: ConnectionFlags, group: GroupName, output: OutputOption = OutputFormat.TABLE) -> None:
    """Describe a group and its members."""
    with flags.open() as cluster:
        found = require_group(cluster, group)
    if output is not OutputFormat.TABLE:
        print_data(
            {**group_row(found), "members": [member_row(found, each) for each in found.members]}, output
        )
        return
    print_out(render_fields(group_row(found), FIELDS))
    if found.members:
        print_out("\n" + _members_table(found))


@groups.command()
@with_flags
def members(flags: ConnectionFlags, group: GroupName, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the members of a group and their partitions."""
    with flags.open() as cluster:
        found = require_group(cluster, group)
    if output is not OutputFormat.TABLE:
        print_data([member_row(found, each) for each in found.members], output)
    elif found.members:
        print_out(_members_table(found))
    else:
        print_err(f"group {group} has no active members; its committed offsets are kept")


@groups.command()
@with_flags
def lag(
    flags: ConnectionFlags,
    group: GroupName,
    read_committed: Annotated[
        bool,
        typer.Option(
            "--read-committed",
            help="Count up to the last stable offset, as consumers with isolation.level=read_committed do.",
        ),
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the lag of a group by partition: the number of uncommitted records, and the age of the first in seconds."""
    with flags.open() as cluster:
        found = measure_lag(cluster, require_group(cluster, group), read_committed=read_committed)
        firsts = {
            each.partition: each.first_uncommitted for each in found if each.first_uncommitted is not None
        }
        timestamps = cluster.records.timestamps(firsts, read_committed=read_committed)
    now_ms = system_clocks().now_ms()
    # If only control markers are uncommitted, there is no record whose age could be shown.
    ages = {
        partition: max(now_ms - timestamps[partition], 0) / 1000 if partition in timestamps else 0.0
        for partition in firsts
    }
    oldest = max(ages.values(), default=None)
    rows = [_lag_row(each, ages.get(each.partition)) for each in found]
    if output is OutputFormat.TABLE:
        print_list(rows, output, LAG_COLUMNS, none=f"group {group} has no committed offsets and no topics")
        print_err(summarize(group, found, oldest))
        return
    whole: Row = {
        "group": group,
        "lag_records": total(found),
        "lag_seconds": None if total(found) is None else oldest or 0.0,
        "unknown_partitions": sum(each.records is None for each in found),
        "partitions": rows,
    }
    print_data(whole, output)


@groups.command()
@with_flags
def delete(
    flags: ConnectionFlags,
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Group IDs.", show_default=False)],
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm: the committed offsets are deleted permanently.")
    ] = False,
) -> None:
    """Delete groups without members, and their committed offsets."""
    with flags.open() as cluster:
        # Check all groups before the first one is deleted.
        for name in names:
            require_group(cluster, name)
        if not yes:
            raise Failure(
                f"{', '.join(names)} and all committed offsets would be deleted: add --yes to confirm"
            )
        for name in names:
            cluster.groups.delete(name)
            print_out(f"deleted {name}")


def group_row(group: Group) -> Row:
    """Convert a group into an output row."""
    return {
        "group": group.group,
        "state": group.state,
        "protocol": group.protocol_type,
        "strategy": group.strategy,
        "generation": group.generation,
        "incarnation": group.incarnation,
        "leader": group.leader,
        "coordinator": group.coordinator,
    }


def member_row(group: Group, member: Member) -> Row:
    """Convert a member into an output row."""
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id or None,
        "client_id": member.client_id,
        "host": member.host,
        "leader": None if group.leader is None else group.leader == member.member_id,
        "partitions": len(member.partitions),
        "assigned": by_topic(member.partitions),
    }


def _members_table(group: Group) -> str:
    rows = [
        {**member_row(group, member), "assigned": format_partitions(member.partitions)}
        for member in group.members
    ]
    return render_table(rows, MEMBER_COLUMNS)


def _lag_row(lag: PartitionLag, age_s: float | None) -> Row:
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
