"""`rota groups reset`: prints the plan of an offset reset, or applies it."""

from typing import Annotated

import typer

from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.local_runner import LocalRunner, find_local_runner
from rota_cli.clusters.model import Group
from rota_cli.clusters.port import Cluster
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.groups import GroupName
from rota_cli.commands.reset_plan import (
    KnownOffsets,
    OffsetChange,
    ShiftBy,
    Target,
    TopicSelection,
    ToTimestamp,
    parse_selection,
    plan,
    select_partitions,
)
from rota_cli.commands.target_flags import TargetFlags
from rota_cli.diagnosis.lag import related_topics
from rota_cli.errors import Failure, WrongUsage, foreign_members, group_not_empty, unknown_group
from rota_cli.output.console import print_err
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_data, print_list
from rota_cli.output.units import pluralize

COLUMNS = ("topic", "partition", "old", "new", "change", "remark")


@with_flags
def reset(
    flags: ConnectionFlags,
    target_flags: TargetFlags,
    group: GroupName,
    topic: Annotated[
        list[str],
        typer.Option(
            help="Reset only this topic, or TOPIC:0,2 for some of its partitions; can be repeated.",
            show_default="all topics of the group",
        ),
    ] = [],  # noqa: B006  typer copies it
    execution: Annotated[
        bool | None,
        typer.Option(
            "--execute/--dry-run",
            help="Apply the reset, or only print the plan; one of them is required.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """
    Reset the offsets of a group, or print the plan. The group must have no members, unless `rota up` in this folder runs
    all of them: then each member sets the offsets of its partitions and continues from there.
    """
    if execution is None:
        raise WrongUsage("add --dry-run to print the plan, or --execute to apply it")
    target = target_flags.target(system_clocks().now_ms())
    selections = [parse_selection(text) for text in topic]
    with flags.open() as cluster:
        found = cluster.groups.describe(group)
        if not found.exists and not selections:
            raise unknown_group(group, found.coordinator or "the brokers")
        runner = find_local_runner(flags.connection()) if found.members else None
        refusal = _refusal(found, runner)
        if execution and refusal is not None:
            raise refusal
        changes = _make_plan(cluster, found, target, selections)
        if execution and runner is not None:
            print_err(
                f"{pluralize(len(found.members), 'member')} of group {group}: pausing, then setting offsets"
            )
            runner.reset(group, {change.partition: change.new for change in changes})
        elif execution:
            _execute(cluster, group, changes)
    _show(group, changes, output, executed=execution, refusal=refusal)


def _refusal(group: Group, runner: LocalRunner | None) -> Failure | None:
    """
    Return why `--execute` is refused, before anything is changed; None if it is not. `runner` runs beside a group
    with members.
    """
    if not group.members:
        return None
    if runner is None:
        return group_not_empty(group.group)
    try:
        ours = runner.replicas(group.group)
    except Failure as failure:
        return failure
    others = {member.client_id for member in group.members} - ours
    return foreign_members(group.group, others) if others else None


def _make_plan(
    cluster: Cluster, group: Group, target: Target, selections: list[TopicSelection]
) -> list[OffsetChange]:
    committed = cluster.groups.offsets(group.group)
    topics = cluster.records.topics([selection.topic for selection in selections])
    selections = selections or [TopicSelection(topic) for topic in sorted(related_topics(group, committed))]
    partitions = select_partitions(selections, topics, committed, shifts=isinstance(target, ShiftBy))
    if not partitions:
        raise Failure(
            f"group {group.group} has no partitions to reset: name topics with --topic; --shift-by needs committed offsets"
        )
    at_time = (
        cluster.records.offsets_at(partitions, target.timestamp_ms) if isinstance(target, ToTimestamp) else {}
    )
    return plan(target, partitions, KnownOffsets(committed, cluster.records.ranges(partitions), at_time))


def _execute(cluster: Cluster, group: str, changes: list[OffsetChange]) -> None:
    cluster.groups.alter(group, {change.partition: change.new for change in changes})
    found = cluster.groups.offsets(group)
    other = [
        change.partition
        for change in changes
        if change.partition not in found or found[change.partition].offset != change.new
    ]
    if other:
        raise Failure(
            f"{other[0].topic}[{other[0].partition}] changed again after the reset: another client commits for group {group}; "
            "stop it and retry"
        )


def _show(
    group: str, changes: list[OffsetChange], output: OutputFormat, *, executed: bool, refusal: Failure | None
) -> None:
    rows: list[Row] = [
        {
            "topic": change.partition.topic,
            "partition": change.partition.partition,
            "old": change.old,
            "new": change.new,
            "change": change.by,
            "remark": change.remark or None,
        }
        for change in changes
    ]
    if output is not OutputFormat.TABLE:
        why_not = None if refusal is None else str(refusal)
        print_data({"group": group, "executed": executed, "refusal": why_not, "partitions": rows}, output)
        return
    print_list(rows, output, COLUMNS, none="")
    if executed:
        print_err(f"reset {pluralize(len(rows), 'offset')} of group {group}")
    elif refusal is not None:
        print_err(f"dry run, nothing changed; --execute would be rejected: {refusal}")
    else:
        print_err("dry run, nothing changed; use --execute to apply")
