"""`rota groups reset`: shows what a reset of offsets would change, or does it."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rota_cli.clusters.clocks import clocks
from rota_cli.clusters.local_runner import Fleet, fleet_beside
from rota_cli.clusters.model import Group
from rota_cli.clusters.port import Cluster
from rota_cli.commands.connection_flags import Servers
from rota_cli.commands.flags import with_flags
from rota_cli.commands.groups import GroupName
from rota_cli.commands.parsing import duration_ms, timestamp_ms
from rota_cli.commands.reset_plan import (
    Change,
    Choice,
    Facts,
    Shift,
    Target,
    ToEnd,
    ToOffset,
    ToStart,
    ToTime,
    choice_of,
    chosen,
    plan,
)
from rota_cli.diagnosis.lag import topics_of
from rota_cli.errors import Failure, WrongUsage, in_use, no_group, partly_in_use
from rota_cli.output.console import note
from rota_cli.output.render import Output, OutputOption, Row, say_data, show_list
from rota_cli.output.units import many

COLUMNS = ("topic", "partition", "old", "new", "change", "remark")


def _flag(name: str, help_text: str, **options: Any) -> Any:  # noqa: ANN401  typer's own words
    return typer.Option(f"--{name}", help=help_text, **options)


@dataclass(frozen=True, slots=True)
class Wish:
    """Where to; one of them is given."""

    to_earliest: Annotated[bool, _flag("to-earliest", "To the first record that is still there.")] = False
    to_latest: Annotated[bool, _flag("to-latest", "Behind the last record.")] = False
    to_offset: Annotated[int | None, _flag("to-offset", "To this offset, in each partition.", min=0)] = None
    to_datetime: Annotated[
        str, _flag("to-datetime", "To the first record at or after a time, as 2026-09-20T12:00:00Z.")
    ] = ""
    shift_by: Annotated[
        int | None, _flag("shift-by", "So many records on, or back if negative, from what is committed.")
    ] = None
    by_duration: Annotated[
        str, _flag("by-duration", "To the first record that is at most so old, as PT1H30M or 7d.")
    ] = ""

    def target(self, now_ms: int) -> Target:
        """What is wished. Raises WrongUsage for none and for several."""
        wishes: list[Target] = []
        if self.to_earliest:
            wishes.append(ToStart())
        if self.to_latest:
            wishes.append(ToEnd())
        if self.to_offset is not None:
            wishes.append(ToOffset(self.to_offset))
        if self.shift_by is not None:
            wishes.append(Shift(self.shift_by))
        if self.to_datetime:
            wishes.append(ToTime(timestamp_ms("--to-datetime", self.to_datetime)))
        if self.by_duration:
            wishes.append(ToTime(max(now_ms - duration_ms("--by-duration", self.by_duration), 0)))
        if len(wishes) != 1:
            raise WrongUsage(
                "say where to, once: --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by or --by-duration"
            )
        return wishes[0]


@with_flags
def reset(
    servers: Servers,
    wish: Wish,
    group: GroupName,
    topic: Annotated[
        list[str],
        typer.Option(
            help="Only this topic, or TOPIC:0,2 for some of its partitions; may be given several times.",
            show_default="all in which something is committed",
        ),
    ] = [],  # noqa: B006  typer copies it
    execution: Annotated[
        bool | None,
        typer.Option(
            "--execute/--dry-run",
            help="Do it, or only show what would change; one of them is needed.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """
    Set the offsets of a group, or show what that would change. Nobody may be in the group, unless `rota up` runs it in this
    folder, and runs all of them: then its members set what they have, and go on from there.
    """
    if execution is None:
        raise WrongUsage("add --dry-run to see what would change, or --execute to change it")
    target = wish.target(clocks().now_ms())
    choices = [choice_of(text) for text in topic]
    with servers.open() as cluster:
        found = cluster.groups.describe(group)
        if not found.exists and not choices:
            raise no_group(group, found.coordinator or "the brokers")
        fleet = fleet_beside(servers.access()) if found.members else None
        refusal = _refusal(found, fleet)
        if execution and refusal is not None:
            raise refusal
        changes = _planned(cluster, found, target, choices)
        if execution and fleet is not None:
            note(
                f"the {many(len(found.members), 'member')} of group {group} stop reading, and set their offsets"
            )
            fleet.reset(group, {change.partition: change.new for change in changes})
        elif execution:
            _execute(cluster, group, changes)
    _show(group, changes, output, executed=execution, refusal=refusal)


def _refusal(group: Group, fleet: Fleet | None) -> Failure | None:
    """Why `--execute` is refused before anything is changed; None where it is not. `fleet` runs beside a group with members."""
    if not group.members:
        return None
    if fleet is None:
        return in_use(group.group)
    try:
        ours = fleet.replicas(group.group)
    except Failure as failure:
        return failure
    others = {member.client_id for member in group.members} - ours
    return partly_in_use(group.group, others) if others else None


def _planned(cluster: Cluster, group: Group, target: Target, choices: list[Choice]) -> list[Change]:
    committed = cluster.groups.offsets(group.group)
    topics = cluster.records.topics([choice.topic for choice in choices])
    choices = choices or [Choice(topic) for topic in sorted(topics_of(group, committed))]
    partitions = chosen(choices, topics, committed, shifts=isinstance(target, Shift))
    if not partitions:
        raise Failure(
            f"group {group.group} has nothing that could be reset so: name topics with --topic, and shift only what has "
            "a commit"
        )
    at_time = (
        cluster.records.offsets_at(partitions, target.timestamp_ms) if isinstance(target, ToTime) else {}
    )
    return plan(target, partitions, Facts(committed, cluster.records.ranges(partitions), at_time))


def _execute(cluster: Cluster, group: str, changes: list[Change]) -> None:
    cluster.groups.alter(group, {change.partition: change.new for change in changes})
    found = cluster.groups.offsets(group)
    other = [
        change.partition
        for change in changes
        if change.partition not in found or found[change.partition].offset != change.new
    ]
    if other:
        raise Failure(
            f"{other[0].topic}[{other[0].partition}] was set, and is something else already: somebody commits for group "
            f"{group}; stop them, and reset it again"
        )


def _show(
    group: str, changes: list[Change], output: Output, *, executed: bool, refusal: Failure | None
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
    if output is not Output.TABLE:
        why_not = None if refusal is None else str(refusal)
        say_data({"group": group, "executed": executed, "refusal": why_not, "partitions": rows}, output)
        return
    show_list(rows, output, COLUMNS, none="")
    if executed:
        note(f"set {many(len(rows), 'offset')} of group {group}")
    elif refusal is not None:
        note(f"nothing was changed, and --execute would be refused: {refusal}")
    else:
        note("nothing was changed: give --execute instead of --dry-run to do it")
