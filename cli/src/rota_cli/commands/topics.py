"""`rota topics`: creates, lists, describes and deletes topics, and deletes records."""

from dataclasses import asdict
from typing import Annotated

import typer

from rota.records import TopicPartition
from rota_cli.clusters.model import Topic
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.topic_config import CleanupFlags, RetentionFlags, config_of
from rota_cli.errors import Failure
from rota_cli.output.console import print_out
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_list
from rota_cli.output.units import humanize_retention, humanize_size, pluralize

topics = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topic names.", show_default=False)]


@topics.command()
@with_flags
def create(
    flags: ConnectionFlags,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")],
    cleanup: CleanupFlags,
    kept: RetentionFlags,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="Number of partitions.")] = 1,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
) -> None:
    """Create a topic."""
    config = config_of(kept.retention, kept.retention_bytes, cleanup)
    wanted = Topic(topic, partitions, config)
    with flags.open() as cluster:
        if if_not_exists and any(each.name == topic for each in cluster.records.topics()):
            print_out(f"topic {topic} already exists")
            return
        cluster.records.create(wanted)
    print_out(f"created topic {topic} with {pluralize(partitions, 'partition')}")


@topics.command("list")
@with_flags
def list_topics(flags: ConnectionFlags, output: OutputOption = OutputFormat.TABLE) -> None:
    """List topics."""
    with flags.open() as cluster:
        found = cluster.records.topics()
    columns = ("topic", "partitions", "retention", "retention_bytes", "cleanup_policy")
    print_list(
        [_row(topic, output) for topic in found],
        output,
        columns,
        none="no topics found: create one with `rota topics create`",
    )


@topics.command()
@with_flags
def describe(flags: ConnectionFlags, names: Names, output: OutputOption = OutputFormat.TABLE) -> None:
    """Describe topics: the start and end offset of each partition."""
    with flags.open() as cluster:
        found = cluster.records.topics(names)
        partitions = [
            TopicPartition(topic.name, index) for topic in found for index in range(topic.partitions)
        ]
        ranges = cluster.records.ranges(partitions)
    rows: list[Row] = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "start": there.start,
            "end": there.end,
            "records": there.end - there.start,
        }
        for partition, there in ranges.items()
    ]
    print_list(rows, output, ("topic", "partition", "start", "end", "records"), none="")


@topics.command()
@with_flags
def delete(
    flags: ConnectionFlags,
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm: the records are deleted permanently.")] = False,
) -> None:
    """Delete topics and all their records."""
    with flags.open() as cluster:
        found = cluster.records.topics(names)
        if not yes:
            raise Failure(
                f"{', '.join(topic.name for topic in found)} and all records would be deleted: add --yes to confirm"
            )
        cluster.records.delete(names)
    print_out(f"deleted {', '.join(names)}")


@topics.command("delete-records")
@with_flags
def delete_records(
    flags: ConnectionFlags,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition number.")],
    before: Annotated[int, typer.Option("--before", min=0, help="First offset to keep.")],
    yes: Annotated[bool, typer.Option("--yes", help="Confirm: the records are deleted permanently.")] = False,
) -> None:
    """Delete the records of a partition before an offset, for all groups; also skips a batch that cannot be read."""
    here = TopicPartition(topic, partition)
    with flags.open() as cluster:
        (found,) = cluster.records.topics([topic])
        if partition >= found.partitions:
            raise Failure(
                f"topic {topic} has no partition {partition} (it has {found.partitions}): see "
                f"`rota topics describe {topic}`"
            )
        there = cluster.records.ranges([here])[here]
        if before > there.end:
            raise Failure(f"{topic}[{partition}] ends at offset {there.end}: --before must not exceed it")
        deleted = max(before - there.start, 0)
        if deleted and not yes:
            raise Failure(
                f"offsets {there.start} to {before - 1} of {topic}[{partition}] would be deleted for all groups: add --yes to confirm"
            )
        start = cluster.records.delete_records(here, before) if deleted else there.start
    print_out(f"{topic}[{partition}] starts at offset {start}")


def _row(topic: Topic, output: OutputFormat) -> Row:
    """Convert a topic into an output row, with units in tables only."""
    if output is OutputFormat.TABLE:
        return {
            "topic": topic.name,
            "partitions": topic.partitions,
            "retention": humanize_retention(topic.config.retention_ms),
            "retention_bytes": humanize_size(topic.config.retention_bytes),
            "cleanup_policy": topic.config.cleanup_policy,
        }
    return {"topic": topic.name, "partitions": topic.partitions, **asdict(topic.config)}
