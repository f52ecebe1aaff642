"""`rota topics add-partitions` and `rota topics alter`: change a topic and keep its records."""

from typing import Annotated

import typer

from rota_cli.clusters.model import TopicConfig
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.topic_config import CleanupFlags, config_of
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
    cleanup: CleanupFlags,
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
    """
    Change the configuration of a topic. Records beyond its retention are deleted at the server's next check; one that becomes
    compacted loses its records without a key.
    """
    config = config_of(retention, retention_bytes, cleanup)
    changes = changes_of(config)
    with flags.open() as cluster:
        cluster.records.topics([topic])
        cluster.records.alter(topic, config)
    print_out(f"altered topic {topic}: {', '.join(changes)}")


def changes_of(config: TopicConfig) -> list[str]:
    """
    Describe the new configuration; raise WrongUsage if there is none, or if it keeps nothing.

    >>> changes_of(TopicConfig(43_200_000, cleanup_policy="compact,delete"))
    ['retention 12h', 'cleanup policy compact,delete']
    """
    if config == TopicConfig():
        raise WrongUsage(
            "nothing to alter: add --retention, --retention-bytes, --cleanup-policy or --delete-retention"
        )
    for flag, value in (("--retention", config.retention_ms), ("--retention-bytes", config.retention_bytes)):
        # Rota reads 0 as the default of its server, Kafka as "keep nothing".
        if value == 0:
            raise WrongUsage(
                f"{flag} must be at least 1: to delete records, use `rota topics delete-records`"
            )
    changes = (
        ("retention", humanize_retention(config.retention_ms)),
        ("retention bytes", humanize_size(config.retention_bytes)),
        ("cleanup policy", config.cleanup_policy),
        ("delete retention", humanize_retention(config.delete_retention_ms)),
    )
    return [f"{name} {value}" for name, value in changes if value is not None]
