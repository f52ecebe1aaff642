"""`kubectl rota groups`: describes a ConsumerGroup, its members and its lag, by the status that the operator writes."""

import typer

from rota_cli.clusters.kubernetes.resource import ConsumerGroup
from rota_cli.commands.flags import with_flags
from rota_cli.commands.kubectl.api_flags import ApiFlags, ResourceName
from rota_cli.commands.kubectl.rows import (
    CONDITION_COLUMNS,
    FIELDS,
    LAG_COLUMNS,
    MEMBER_COLUMNS,
    condition_row,
    field_row,
    group_row,
    member_notes,
    member_row,
    status_notes,
)
from rota_cli.errors import Failure
from rota_cli.output.console import print_err, print_out
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_data, render_fields, render_table
from rota_cli.output.units import pluralize

groups = typer.Typer(
    help="Inspect, watch, reset and upgrade consumer groups by their ConsumerGroups.", no_args_is_help=True
)


@groups.command()
@with_flags
def describe(flags: ApiFlags, name: ResourceName, output: OutputOption = OutputFormat.TABLE) -> None:
    """Describe a ConsumerGroup: its group, conditions and members."""
    group, instances = _read_with_instances(flags, name)
    members = [member_row(each, instances) for each in group.placements]
    conditions = [condition_row(each) for each in group.conditions]
    if output is not OutputFormat.TABLE:
        print_data({**group_row(group), "conditions": conditions, "members": members}, output)
        return
    print_out(render_fields(field_row(group), FIELDS))
    for rows, columns in ((conditions, CONDITION_COLUMNS), (members, MEMBER_COLUMNS)):
        if rows:
            print_out("\n" + render_table(rows, columns))
    _print_notes(*status_notes(group), *member_notes(group))


@groups.command()
@with_flags
def members(flags: ApiFlags, name: ResourceName, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the members of a group: pod, number of partitions, lag."""
    group, instances = _read_with_instances(flags, name)
    rows = [member_row(each, instances) for each in group.placements]
    if output is not OutputFormat.TABLE:
        print_data(rows, output)
        return
    if rows:
        print_out(render_table(rows, MEMBER_COLUMNS))
    else:
        print_err(_describe_no_members(group))
    _print_notes(*status_notes(group), *member_notes(group))


@groups.command()
@with_flags
def lag(flags: ApiFlags, name: ResourceName, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the lag of a group and of each member: the number of uncommitted records, and the age of the oldest in seconds."""
    group = _read(flags, name)
    rows: list[Row] = [
        {"pod": each.pod, "partitions": each.partitions, "lag_records": each.lag_records}
        for each in group.placements
    ]
    if output is not OutputFormat.TABLE:
        print_data(_lag_data(group, rows), output)
        return
    if rows:
        print_out(render_table(rows, LAG_COLUMNS))
    _print_notes(_summarize_lag(group), *status_notes(group), *member_notes(group))


@groups.command()
@with_flags
def offsets(flags: ApiFlags, name: ResourceName, output: OutputOption = OutputFormat.TABLE) -> None:
    """Say where committed offsets by partition are found: the status of a ConsumerGroup does not hold them."""
    group = _read(flags, name)
    raise Failure(
        f"the status of {group.full_name} holds no committed offsets by partition: run `{group.rota_command('offsets')}` "
        "where these servers can be reached"
    )


def _read(flags: ApiFlags, name: str) -> ConsumerGroup:
    target = flags.open(name)
    from rota_cli.clusters.kubernetes.groups import read_group

    with target.api as api:
        return read_group(api, target.namespace, name)


def _read_with_instances(flags: ApiFlags, name: str) -> tuple[ConsumerGroup, dict[str, str]]:
    """Read a ConsumerGroup, and the instances of its pods; a caller who may not read ConfigMaps is told so."""
    target = flags.open(name)
    from rota_cli.clusters.kubernetes.errors import Forbidden
    from rota_cli.clusters.kubernetes.groups import read_group, read_instances

    with target.api as api:
        group = read_group(api, target.namespace, name)
        try:
            return group, read_instances(api, group)
        except Forbidden as error:
            print_err(f"instances of static members are unknown: {error}")
            return group, {}


def _print_notes(*notes: str) -> None:
    for note in notes:
        print_err(note)


def _describe_no_members(group: ConsumerGroup) -> str:
    if group.members is None:
        return f"the members of {group.full_name} are unknown: {_ready_reason(group)}"
    return f"group {group.group_id} has no active members; its committed offsets are kept"


def _ready_reason(group: ConsumerGroup) -> str:
    ready = group.condition("Ready")
    if ready is None:
        return "it has no condition Ready"
    return ready.message or ready.reason


def _lag_data(group: ConsumerGroup, rows: list[Row]) -> Row:
    return {
        "name": group.name,
        "namespace": group.namespace,
        "group": group.group_id,
        "lag_records": group.lag_records,
        "lag_seconds": group.lag_seconds,
        "partition_lag_records_max": group.lag_records_max,
        "unowned_partitions": group.unowned_partitions,
        "members": rows,
    }


def _summarize_lag(group: ConsumerGroup) -> str:
    """Summarize the lag of all partitions, those without an owner included."""
    if group.lag_records is None:
        lagging = group.condition("Lagging")
        why = (lagging.message or lagging.reason) if lagging is not None else _ready_reason(group)
        return f"the lag of {group.full_name} is unknown: {why}"
    said = f"group {group.group_id} has a lag of {pluralize(group.lag_records, 'record')}"
    if group.lag_records_max:
        said += f", up to {group.lag_records_max} in one partition"
    if group.lag_seconds is not None:
        said += f", the oldest is {group.lag_seconds} s old" if group.lag_records else ""
    elif group.lag_records:
        said += ", their age is unknown"
    if group.unowned_partitions:
        said += f"; {pluralize(group.unowned_partitions, 'partition')} without an owner included"
    return said
