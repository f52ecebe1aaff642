"""`rota consume`: prints the records of a topic; joins no group and commits nothing."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import typer

from rota.records import Record, TopicPartition
from rota_cli.clusters.port import Cluster
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.errors import WrongUsage
from rota_cli.output.console import print_out
from rota_cli.output.render import OutputFormat, OutputOption, print_data
from rota_cli.output.units import format_timestamp

HEADINGS = ("PARTITION", "OFFSET", "TIME", "KEY", "VALUE")
LINE = "{:>9}   {:>10}   {:<24}   {:<16}   {}"


@dataclass(frozen=True, slots=True)
class ConsumeFlags:
    """Flags of `rota consume`."""

    from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", help="Start at the earliest offset instead of the end."),
    ] = False
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep waiting for new records until Ctrl-C.")
    ] = False
    max_records: Annotated[
        int | None, typer.Option(min=1, help="Exit after this many records.", show_default="all")
    ] = None
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Skip records of open and aborted transactions.")
    ] = False
    value_only: Annotated[bool, typer.Option("--value-only", help="Print values only, one per line.")] = False


@with_flags
def consume(
    flags: ConnectionFlags,
    reading: ConsumeFlags,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the records of a topic, without joining a group."""
    if not reading.from_beginning and not reading.follow:
        raise WrongUsage(
            "nothing to read: add --from-beginning for existing records, --follow for new ones, or both"
        )
    # Following ends with Ctrl-C only.
    with suppress(KeyboardInterrupt) if reading.follow else nullcontext(), flags.open() as cluster:
        show = _record_printer(output, value_only=reading.value_only)
        for record in islice(_records(cluster, topic, reading), reading.max_records):
            show(record)


def _records(cluster: Cluster, topic: str, reading: ConsumeFlags) -> Iterator[Record]:
    """Read from the start positions to the end offsets, or endlessly with --follow."""
    (found,) = cluster.records.topics([topic])
    partitions = [TopicPartition(topic, number) for number in range(found.partitions)]
    ranges = cluster.records.ranges(partitions, read_committed=reading.read_committed)
    positions = {
        each: ranges[each].start if reading.from_beginning else ranges[each].end for each in partitions
    }
    ends = {} if reading.follow else {each: ranges[each].end for each in partitions}

    def is_through() -> bool:
        return not reading.follow and all(positions[each] >= end for each, end in ends.items())

    if is_through():
        return
    for fetched in cluster.records.read(positions, read_committed=reading.read_committed):
        for record in fetched.records:
            end = ends.get(TopicPartition(record.topic, record.partition))
            if end is None or record.offset < end:
                yield record
        positions = {**positions, **fetched.next_offsets}
        if is_through():
            return


def _record_printer(output: OutputFormat, *, value_only: bool) -> Callable[[Record], None]:
    """Return the printer of one record. Records stream, so column widths are fixed."""
    if value_only:
        return lambda record: print_out(
            escape(record.value) if output is OutputFormat.TABLE else json.dumps(_json_value(record.value))
        )
    if output is OutputFormat.JSON:
        return lambda record: print_out(json.dumps(_row(record), ensure_ascii=False))
    if output is OutputFormat.YAML:
        return _show_yaml
    print_out(LINE.format(*HEADINGS))
    return _show_line


def _show_yaml(record: Record) -> None:
    print_out("---")
    print_data(_row(record), OutputFormat.YAML)


def _show_line(record: Record) -> None:
    time, key, value = format_timestamp(record.timestamp_ms), escape(record.key), escape(record.value)
    print_out(LINE.format(record.partition, record.offset, time, key, value))


def escape(content: bytes | None) -> str:
    """
    Text as it is, and everything else so that it neither moves the cursor nor ends the line.

    >>> escape(b"caf\\xc3\\xa9\\n"), escape(b"\\xff"), escape(None)
    ('café\\\\n', '\\\\xff', '-')
    """
    if content is None:
        return "-"
    text = content.decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _row(record: Record) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _json_value(record.key),
        "value": _json_value(record.value),
        "headers": [{"name": name, "value": _json_value(value)} for name, value in record.headers],
    }


def _json_value(content: bytes | None) -> object:
    """Return UTF-8 text as it is, other bytes in base64."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
