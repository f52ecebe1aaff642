"""`rota groups watch`: what happens to a group."""

import json
from contextlib import suppress
from typing import Annotated

import typer

from rota_cli.clusters.model import Group
from rota_cli.clusters.port import Seen
from rota_cli.commands.connection_flags import Servers
from rota_cli.commands.flags import with_flags
from rota_cli.commands.groups import GroupName, group_row, member_row
from rota_cli.diagnosis.changes import changes
from rota_cli.output.console import say
from rota_cli.output.render import Output, OutputOption, Row, say_data
from rota_cli.output.units import spoken_time

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
