"""The flags of a topic's configuration, for `rota topics create` and `alter`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from rota_cli.clusters.model import TopicConfig
from rota_cli.commands.parsing import duration_ms, retention_ms
from rota_cli.commands.parsing import retention_bytes as bytes_to_keep
from rota_cli.errors import WrongUsage

DEFAULT_LIMIT = "server default"


class CleanupPolicy(StrEnum):
    """Kafka's values of cleanup.policy."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_DELETE = "compact,delete"


@dataclass(frozen=True, slots=True)
class CleanupFlags:
    """Flags of log compaction."""

    cleanup_policy: Annotated[
        CleanupPolicy | None,
        typer.Option(
            help="'compact' keeps the last record of each key, 'delete' what is within the retention.",
            show_default=False,
        ),
    ] = None
    delete_retention: Annotated[
        str,
        typer.Option(
            help="How long compaction keeps records without a value, such as 1d.", show_default=False
        ),
    ] = ""


@dataclass(frozen=True, slots=True)
class RetentionFlags:
    """Flags of the retention of a topic that is created."""

    retention: Annotated[
        str,
        typer.Option(help="Retention time, such as PT12H or 7d, or 'forever'.", show_default=DEFAULT_LIMIT),
    ] = ""
    retention_bytes: Annotated[
        str,
        typer.Option(
            help="Retention size of each partition, such as 512MiB, or 'unlimited'.",
            show_default=DEFAULT_LIMIT,
        ),
    ] = ""


def config_of(retention: str, retention_bytes: str, cleanup: CleanupFlags) -> TopicConfig:
    """
    Parse the flags; raise WrongUsage if they cannot be set together. Flags that are not given are None.

    >>> config_of("12h", "", CleanupFlags(CleanupPolicy.COMPACT_DELETE)).cleanup_policy
    'compact,delete'
    """
    policy, delete_retention = cleanup.cleanup_policy, cleanup.delete_retention
    config = TopicConfig(
        retention_ms(retention),
        bytes_to_keep(retention_bytes),
        None if policy is None else policy.value,
        duration_ms("--delete-retention", delete_retention) if delete_retention else None,
    )
    if policy is CleanupPolicy.COMPACT and max(config.retention_ms or 0, config.retention_bytes or 0) > 0:
        raise WrongUsage(
            "a topic with --cleanup-policy compact has no retention: use compact,delete, or omit the retention"
        )
    return config
