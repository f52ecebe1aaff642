"""`rota topics add-partitions` and `rota topics alter`: change a topic and keep its records."""

from typing import Annotated

import typer

from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.parsing import retention_bytes as bytes_to_keep
from rota_cli.commands.parsing import retention_ms
from rota_cli.errors import Failure, WrongUsage
from rota_cli.output.console import print_err, print_out
from rota_cli.output.units import humanize_retention, humanize_size, pluralize

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")]


@with_flags
def add_partitions(
    flags: ConnectionFlags,
    topic: TopicName,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="New total number of partitions.")
    ],
) -> None:
    """Increase the number of partitions of a topic. Records with a key may go to other partitions afterwards."""
    with flags.open() as cluster:
        (found,) = cluster.records.topics([topic])
        if partitions <= found.partitions:
            raise Failure(
                f"topic {topic} has {pluralize(found.partitions, 'partition')}, and the number never decreases: "
                f"--partitions must be at least {found.partitions + 1}"
            )
        cluster.records.add_partitions(topic, partitions)
    print_out(f"topic {topic} has {pluralize(partitions, 'partition')}")
    print_err("records with a key may go to other partitions from now on")


@with_flags
def alter(
    flags: ConnectionFlags,
    topic: TopicName,
    retention: Annotated[
        str,
        typer.Option(
            help="Retention time, such as PT12H or 7d, or 'forever'.", show_default="stays as it is"
        ),
    ] = "",
    retention_bytes: Annotated[
        str,
        typer.Option(
            help="Retention size of each partition, such as 512MiB, or 'unlimited'.",
            show_default="stays as it is",
        ),
    ] = "",
) -> None:
    """Change the retention of a topic. Records beyond it are deleted at the server's next check."""
    kept_ms, kept_bytes = retention_ms(retention), bytes_to_keep(retention_bytes)
    changes = changes_of(kept_ms, kept_bytes)
    with flags.open() as cluster:
        cluster.records.topics([topic])
        cluster.records.alter(topic, kept_ms, kept_bytes)
    print_out(f"altered topic {topic}: {', '.join(changes)}")


def changes_of(kept_ms: int | None, kept_bytes: int | None) -> list[str]:
    """
    Describe the new retention; raise WrongUsage if there is none, or if it keeps nothing.

    >>> changes_of(43_200_000, None)
    ['retention 12h']
    """
    if kept_ms is None and kept_bytes is None:
        raise WrongUsage("nothing to alter: add --retention or --retention-bytes")
    for flag, value in (("--retention", kept_ms), ("--retention-bytes", kept_bytes)):
        # Rota reads 0 as the default of its server, Kafka as "keep nothing".
        if value == 0:
            raise WrongUsage(
                f"{flag} must be at least 1: to delete records, use `rota topics delete-records`"
            )
    changes = (("retention", humanize_retention(kept_ms)), ("retention bytes", humanize_size(kept_bytes)))
    return [f"{name} {value}" for name, value in changes if value is not None]
