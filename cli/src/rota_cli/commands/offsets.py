"""`rota groups offsets`: lists committed offsets, or exports them into a file that `rota groups reset --from-file` takes."""

from pathlib import Path
from typing import Annotated

import typer

from rota.records import TopicPartition
from rota_cli.clusters.model import Committed
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.group_selection import GroupSelection
from rota_cli.commands.offsets_file import format_offsets, write_offsets
from rota_cli.errors import Failure
from rota_cli.output.console import print_err
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_list
from rota_cli.output.units import pluralize

COLUMNS = ("topic", "partition", "offset", "metadata")
OffsetsByGroup = dict[str, dict[TopicPartition, Committed]]


@with_flags
def offsets(
    flags: ConnectionFlags,
    selection: GroupSelection,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            help="Write the offsets to this file instead: JSON if it ends in .json, else CSV as kafka-consumer-groups does.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List or export the committed offsets of groups by partition; each is the next offset to read."""
    with flags.open() as cluster:
        found = {group.group: cluster.groups.offsets(group.group) for group in selection.describe(cluster)}
    if export is not None:
        _export(export, found, with_group=not selection.is_single)
        return
    rows: list[Row] = [
        {
            **({} if selection.is_single else {"group": group}),
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": each.offset,
            "metadata": each.metadata,
        }
        for group, committed in found.items()
        for partition, each in sorted(committed.items())
    ]
    columns = COLUMNS if selection.is_single else ("group", *COLUMNS)
    print_list(rows, output, columns, none=_none(found))


def _export(file: Path, found: OffsetsByGroup, *, with_group: bool) -> None:
    count = sum(map(len, found.values()))
    if not count:
        raise Failure(f"{_none(found)}: nothing to export")
    offsets_by_group = {
        group: {partition: each.offset for partition, each in committed.items()}
        for group, committed in found.items()
    }
    write_offsets(file, format_offsets(file.name, offsets_by_group, with_group=with_group))
    groups = ", ".join(found) if len(found) == 1 else pluralize(len(found), "group")
    print_err(f"exported {pluralize(count, 'offset')} of {groups} to {file}")


def _none(found: OffsetsByGroup) -> str:
    """Say that no group has committed offsets."""
    if len(found) == 1:
        return f"group {next(iter(found))} has no committed offsets"
    return "no group has committed offsets"
