"""`rota groups reset`: prints the plans of offset resets, or applies them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rota.errors import RotaError
from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.local_runner import LocalRunner, find_local_runner
from rota_cli.clusters.model import Group
from rota_cli.clusters.port import Cluster
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.group_selection import GroupNames
from rota_cli.commands.queries import partition_counts
from rota_cli.commands.reset_flags import CommandTargetFlags, ResetRequest
from rota_cli.commands.reset_plan import (
    KnownOffsets,
    OffsetChange,
    ShiftBy,
    Target,
    ToOffsets,
    TopicSelection,
    ToTimestamp,
    parse_selection,
    plan,
    select_partitions,
)
from rota_cli.diagnosis.lag import related_topics
from rota_cli.errors import Failure, WrongUsage, foreign_members, group_not_empty, unknown_group
from rota_cli.output.console import print_err
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_data, print_list
from rota_cli.output.units import pluralize

COLUMNS = ("topic", "partition", "old", "new", "change", "remark")


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Reset of one group. `refusal` is why it is not executed; `runner` runs all members of a group that has some."""

    group: Group
    changes: list[OffsetChange]
    refusal: Failure | None
    runner: LocalRunner | None


@with_flags
def reset(
    flags: ConnectionFlags,
    target_flags: CommandTargetFlags,
    groups: GroupNames = None,
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
    Reset the offsets of groups, or print the plan. A group must have no members, unless `rota up` in this folder runs
    all of them: then each member sets the offsets of its partitions and continues from there.
    """
    if execution is None:
        raise WrongUsage("add --dry-run to print the plan, or --execute to apply it")
    names = list(dict.fromkeys(groups or ()))
    selections = [parse_selection(text) for text in topic]
    request = target_flags.request(names, selections, system_clocks().now_ms())
    with flags.open() as cluster:
        plans = make_plans(cluster, flags, request, refuse=execution)
        if execution:
            execute_all(cluster, plans)
    if len(names) == 1:
        _show(plans[0], output, executed=execution)
    else:
        _show_several(plans, output, executed=execution)


def make_plans(
    cluster: Cluster, flags: ConnectionFlags, request: ResetRequest, *, refuse: bool
) -> list[GroupPlan]:
    """Plan the resets of all groups; with `refuse`, raise the first refusal. Changes nothing."""
    if request.file is not None:
        request.file.check_partitions(partition_counts(cluster))
    plans = []
    for name, target in request.targets.items():
        found = cluster.groups.describe(name)
        if not found.exists and not request.selections and not isinstance(target, ToOffsets):
            raise unknown_group(name, found.coordinator or "the brokers")
        runner = find_local_runner(flags.connection()) if found.members else None
        refusal = _refusal(found, runner)
        if refuse and refusal is not None:
            raise refusal
        changes = _make_plan(cluster, found, target, request.selections)
        plans.append(GroupPlan(found, changes, refusal, runner))
    return plans


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
    cluster: Cluster, group: Group, target: Target, selections: Sequence[TopicSelection]
) -> list[OffsetChange]:
    committed = cluster.groups.offsets(group.group)
    if isinstance(target, ToOffsets):
        partitions = list(target.offsets)
    else:
        topics = cluster.records.topics([selection.topic for selection in selections])
        selections = selections or [
            TopicSelection(topic) for topic in sorted(related_topics(group, committed))
        ]
        partitions = select_partitions(selections, topics, committed, shifts=isinstance(target, ShiftBy))
    if not partitions:
        raise Failure(
            f"group {group.group} has no partitions to reset: name topics with --topic; --shift-by needs committed offsets"
        )
    at_time = (
        cluster.records.offsets_at(partitions, target.timestamp_ms) if isinstance(target, ToTimestamp) else {}
    )
    return plan(target, partitions, KnownOffsets(committed, cluster.records.ranges(partitions), at_time))


def execute_all(cluster: Cluster, plans: list[GroupPlan]) -> None:
    """Execute the plans one after the other. A failure names the groups that are reset already."""
    done: list[str] = []
    for each in plans:
        try:
            _execute(cluster, each)
        except (Failure, RotaError) as error:
            if not done:
                raise
            raise Failure(f"{error}; reset before this group: {', '.join(done)}") from error
        done.append(each.group.group)


def _execute(cluster: Cluster, each: GroupPlan) -> None:
    group, changes = each.group.group, each.changes
    offsets = {change.partition: change.new for change in changes}
    if each.runner is not None:
        members = pluralize(len(each.group.members), "member")
        print_err(f"{members} of group {group}: pausing, then setting offsets")
        each.runner.reset(group, offsets)
        return
    cluster.groups.alter(group, offsets)
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


def _show(each: GroupPlan, output: OutputFormat, *, executed: bool) -> None:
    if output is not OutputFormat.TABLE:
        print_data(_data(each, executed=executed), output)
        return
    print_list(_rows(each), output, COLUMNS, none="")
    _print_outcome(each, executed=executed)


def _show_several(plans: list[GroupPlan], output: OutputFormat, *, executed: bool) -> None:
    if output is not OutputFormat.TABLE:
        print_data([_data(each, executed=executed) for each in plans], output)
        return
    rows: list[Row] = [{"group": each.group.group, **row} for each in plans for row in _rows(each)]
    print_list(rows, output, ("group", *COLUMNS), none="")
    for each in plans:
        _print_outcome(each, executed=executed)


def _data(each: GroupPlan, *, executed: bool) -> Row:
    return {
        "group": each.group.group,
        "executed": executed,
        "refusal": None if each.refusal is None else str(each.refusal),
        "partitions": _rows(each),
    }


def _rows(each: GroupPlan) -> list[Row]:
    return [
        {
            "topic": change.partition.topic,
            "partition": change.partition.partition,
            "old": change.old,
            "new": change.new,
            "change": change.by,
            "remark": change.remark or None,
        }
        for change in each.changes
    ]


def _print_outcome(each: GroupPlan, *, executed: bool) -> None:
    if executed:
        print_err(f"reset {pluralize(len(each.changes), 'offset')} of group {each.group.group}")
    elif each.refusal is not None:
        print_err(f"dry run, nothing changed; --execute would be rejected: {each.refusal}")
    else:
        print_err("dry run, nothing changed; use --execute to apply")
