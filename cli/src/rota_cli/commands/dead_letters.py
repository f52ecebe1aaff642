"""`rota dead-letters list`: shows the dead letters of a topic, and why they failed."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from rota.records import TopicPartition
from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.port import Records
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.consume import escape
from rota_cli.commands.dead_letter_filter import DeadLetterFlags, DeadLetterTopic
from rota_cli.commands.dead_letter_headers import DeadLetter
from rota_cli.commands.dead_letter_scan import TopicScan, with_problems
from rota_cli.commands.flags import with_flags
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_list
from rota_cli.output.units import format_timestamp

dead_letters = typer.Typer(help="List and replay dead letters.", no_args_is_help=True)

COLUMNS = ("partition", "offset", "time", "origin", "group", "deliveries", "state", "reason", "remark")


class DeadLetterState(StrEnum):
    """State of a dead letter for a replay."""

    PENDING = "pending"
    REPLAYED = "replayed"
    # It cannot be replayed; the remark has the reason.
    SKIPPED = "skipped"


@dead_letters.command("list")
@with_flags
def list_dead_letters(
    flags: ConnectionFlags,
    chosen: DeadLetterFlags,
    topic: DeadLetterTopic,
    include_replayed: Annotated[
        bool, typer.Option("--include-replayed", help="Also list dead letters that were replayed.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the dead letters of a topic that were not replayed, with the origin and the reason of each."""
    wanted = chosen.filter()
    with flags.open() as cluster:
        partitions = partitions_of(cluster.records, topic)
        ranges = cluster.records.ranges(partitions, read_committed=True)
        scan = TopicScan(cluster.records, system_clocks().monotonic_s, flags.timeout)
        found = scan.dead_letters(
            {here: there.start for here, there in ranges.items()},
            {here: there.end for here, there in ranges.items()},
            wanted,
            keep_replayed=include_replayed,
        )
        found = with_problems(found, cluster.records.topics())
    print_list(rows_of(found, output), output, COLUMNS, none=f"no dead letters found in {topic}")


def partitions_of(records: Records, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic; raise NotFound for an unknown one."""
    (found,) = records.topics([topic])
    return [TopicPartition(topic, number) for number in range(found.partitions)]


def state_of(dead_letter: DeadLetter) -> DeadLetterState:
    """Return the state of a dead letter."""
    if dead_letter.is_replayed:
        return DeadLetterState.REPLAYED
    return DeadLetterState.SKIPPED if dead_letter.problem else DeadLetterState.PENDING


def rows_of(dead_letters: Sequence[DeadLetter], output: OutputFormat) -> list[Row]:
    """Convert dead letters into output rows, with texts and times for people in tables only."""
    return [(_table_row if output is OutputFormat.TABLE else _row)(each) for each in dead_letters]


def _row(dead_letter: DeadLetter) -> Row:
    origin = dead_letter.origin
    return {
        "partition": dead_letter.partition.partition,
        "offset": dead_letter.offset,
        "timestamp_ms": dead_letter.timestamp_ms,
        "origin_topic": None if origin is None else origin.partition.topic,
        "origin_partition": None if origin is None else origin.partition.partition,
        "origin_offset": None if origin is None else origin.offset,
        "group": None if origin is None else origin.group,
        "deliveries": None if origin is None else origin.deliveries,
        "state": state_of(dead_letter).value,
        "reason": None if origin is None else origin.reason,
        "remark": dead_letter.problem or None,
    }


def _table_row(dead_letter: DeadLetter) -> Row:
    row, origin = dict(_row(dead_letter)), dead_letter.origin
    row["time"] = format_timestamp(dead_letter.timestamp_ms)
    if origin is not None:
        topic, partition = origin.partition
        row["origin"] = escape(f"{topic}[{partition}] at {origin.offset}".encode())
        row["group"], row["reason"] = escape(origin.group.encode()), escape(origin.reason.encode())
    row["remark"] = escape(dead_letter.problem.encode())
    return row
