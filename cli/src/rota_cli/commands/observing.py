"""`rota groups watch` and `rota groups explain`: what happens to a group, and why it stands as it does."""

import json
from contextlib import suppress
from typing import Annotated

import typer

from rota_cli.access import Access
from rota_cli.cluster import Cluster, Seen
from rota_cli.commands.groups import GroupName, existing, group_row, member_row
from rota_cli.explaining import Remark, explain
from rota_cli.failures import Failure
from rota_cli.flags import with_flags
from rota_cli.fleet import fleet_beside
from rota_cli.output import Output, OutputOption, Row, say, say_data
from rota_cli.servers import Servers
from rota_cli.stalled import stalled
from rota_cli.units import spoken_time
from rota_cli.values import Group
from rota_cli.watching import changes

EVERY_S = 1.0


@with_flags
def watch(
    servers: Servers,
    group: GroupName,
    interval: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600, help="On Kafka: how many seconds lie between two looks; Rota tells at once."
        ),
    ] = EVERY_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show each change of a group as it comes, until Ctrl-C: states, members, partitions that move."""
    before: Group | None = None
    with servers.open() as cluster, suppress(KeyboardInterrupt):
        for seen in cluster.groups.watch(group, every_s=interval):
            said = changes(before, seen.group)
            before = seen.group
            if said:
                _show(seen, said, output)


def _show(seen: Seen, said: list[str], output: Output) -> None:
    at = spoken_time(seen.timestamp_ms)
    if output is Output.TABLE:
        why = f" ({seen.reason})" if seen.reason else ""
        say(f"{at}   {'; '.join(said)}{why}")
        return
    row: Row = {
        "at": at,
        **group_row(seen.group),
        "members": [member_row(seen.group, member) for member in seen.group.members],
        "changes": said,
        "reason": seen.reason or None,
    }
    if output is Output.JSON:
        say(json.dumps(row, ensure_ascii=False))
    else:
        say("---")
        say_data(dict(row), output)


@with_flags
def explain_group(servers: Servers, group: GroupName, output: OutputOption = Output.TABLE) -> None:
    """Why a group stands as it does: its last rebalance and its assignment, as far as anybody tells."""
    with servers.open() as cluster:
        existing(cluster, group)
        seen = next(iter(cluster.groups.watch(group, every_s=EVERY_S)))
        topics = _partitions(cluster)
        remarks = explain(seen.group, topics, seen.reason, cluster.groups.where_reasons_are)
        remarks += [Remark("reading", says) for says in stalled(cluster, seen.group, topics)]
    remarks += _reported(servers.access(), group)
    if output is Output.TABLE:
        for remark in remarks:
            say(f"{remark.about + ':':<12} {remark.says}")
    else:
        say_data([_row(remark) for remark in remarks], output)


def _reported(access: Access, group: str) -> list[Remark]:
    """What the group's sidecars report, where `rota up` runs them in this folder."""
    fleet = fleet_beside(access)
    if fleet is None:
        return []
    try:
        return [Remark("reading", says) for says in fleet.problems(access.timeout_s).get(group, [])]
    except Failure as failure:
        return [Remark("reading", str(failure), known=False)]


def _partitions(cluster: Cluster) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in cluster.records.topics()}


def _row(remark: Remark) -> dict[str, object]:
    return {"about": remark.about, "says": remark.says, "known": remark.known}
