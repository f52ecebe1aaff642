"""`rota groups`: lists and describes groups and their members; deletes groups."""

from typing import Annotated

import typer

from rota_cli.clusters.model import Group, Member
from rota_cli.commands.completion import complete_group
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.group_selection import GroupSelection
from rota_cli.commands.queries import require_group
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

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Group ID.", autocompletion=complete_group)]
FIELDS = (
    "group",
    "type",
    "state",
    "protocol",
    "strategy",
    "generation",
    "incarnation",
    "leader",
    "coordinator",
)
MEMBER_COLUMNS = ("member_id", "instance_id", "client_id", "host", "leader", "partitions", "assigned")


NO_GROUPS = "no groups found: a group is created when its first member joins"


@groups.command("list")
@with_flags
def list_groups(flags: ConnectionFlags, output: OutputOption = OutputFormat.TABLE) -> None:
    """List all groups, their types and their states."""
    with flags.open() as cluster:
        found = cluster.groups.list_all()
    rows: list[Row] = [
        {
            "group": each.group,
            "type": each.group_type,
            "state": each.state,
            "protocol": each.protocol_type,
        }
        for each in found
    ]
    print_list(
        rows,
        output,
        ("group", "type", "state", "protocol"),
        none=NO_GROUPS,
    )


@groups.command()
@with_flags
def describe(
    flags: ConnectionFlags, selection: GroupSelection, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Describe groups and their members."""
    with flags.open() as cluster:
        found = selection.describe(cluster)
    if output is not OutputFormat.TABLE:
        described = [
            {**group_row(each), "members": [member_row(each, member) for member in each.members]}
            for each in found
        ]
        print_data(described[0] if selection.is_single else described, output)
    elif found:
        print_out("\n\n".join(map(_description, found)))
    else:
        print_err(NO_GROUPS)


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
def delete(
    flags: ConnectionFlags,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP...", help="Group IDs.", show_default=False, autocompletion=complete_group
        ),
    ],
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
        "type": group.group_type,
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


def _description(group: Group) -> str:
    fields = render_fields(group_row(group), FIELDS)
    return f"{fields}\n\n{_members_table(group)}" if group.members else fields


def _members_table(group: Group) -> str:
    rows = [
        {**member_row(group, member), "assigned": format_partitions(member.partitions)}
        for member in group.members
    ]
    return render_table(rows, MEMBER_COLUMNS)
