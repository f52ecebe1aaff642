"""`rota groups watch`: prints each change of a group."""

import json
from contextlib import suppress
from typing import Annotated

import typer

from rota_cli.clusters.model import Group
from rota_cli.clusters.port import GroupSnapshot
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.groups import GroupName, group_row, member_row
from rota_cli.diagnosis.changes import describe_changes
from rota_cli.output.console import print_out
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_data
from rota_cli.output.units import format_timestamp

EVERY_S = 1.0


@with_flags
def watch(
    flags: ConnectionFlags,
    group: GroupName,
    interval: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600, help="Seconds between two polls of Kafka; Rota reports changes at once."
        ),
    ] = EVERY_S,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print each change of a group until Ctrl-C: its state, members, and partitions that move."""
    before: Group | None = None
    with flags.open() as cluster, suppress(KeyboardInterrupt):
        for snapshot in cluster.groups.watch(group, every_s=interval):
            changes = describe_changes(before, snapshot.group)
            before = snapshot.group
            if changes:
                _show(snapshot, changes, output)


def _show(snapshot: GroupSnapshot, changes: list[str], output: OutputFormat) -> None:
    at = format_timestamp(snapshot.timestamp_ms)
    if output is OutputFormat.TABLE:
        why = f" ({snapshot.reason})" if snapshot.reason else ""
        print_out(f"{at}   {'; '.join(changes)}{why}")
        return
    row: Row = {
        "at": at,
        **group_row(snapshot.group),
        "members": [member_row(snapshot.group, member) for member in snapshot.group.members],
        "changes": changes,
        "reason": snapshot.reason or None,
    }
    if output is OutputFormat.JSON:
        print_out(json.dumps(row, ensure_ascii=False))
    else:
        print_out("---")
        print_data(dict(row), output)
