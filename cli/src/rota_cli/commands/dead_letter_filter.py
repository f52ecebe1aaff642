"""Flags that choose dead letters, which `rota dead-letters list` and `replay` share."""

from dataclasses import dataclass
from typing import Annotated

import typer

from rota_cli.commands.dead_letter_headers import DeadLetter
from rota_cli.commands.parsing import timestamp_ms
from rota_cli.errors import WrongUsage

DeadLetterTopic = Annotated[str, typer.Argument(metavar="TOPIC", help="Dead-letter topic.")]


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Conditions that a dead letter meets, all of them; an empty one is always met. Times in ms, `until_ms` exclusive."""

    topic: str = ""
    group: str = ""
    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, dead_letter: DeadLetter) -> bool:
        """Return whether the dead letter is chosen. One without an origin has neither topic, group nor reason."""
        if self.since_ms is not None and dead_letter.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and dead_letter.timestamp_ms >= self.until_ms:
            return False
        origin = dead_letter.origin
        if origin is None:
            return not (self.topic or self.group or self.reason)
        return (
            self.topic in ("", origin.partition.topic)
            and self.group in ("", origin.group)
            and self.reason in origin.reason
        )


@dataclass(frozen=True, slots=True)
class DeadLetterFlags:
    """Flags of a filter."""

    origin: Annotated[
        str,
        typer.Option("--topic", help="Only dead letters of records of this topic.", show_default="all"),
    ] = ""
    group: Annotated[str, typer.Option(help="Only dead letters of this group.", show_default="all")] = ""
    reason: Annotated[
        str, typer.Option(help="Only dead letters whose reason contains this text.", show_default="all")
    ] = ""
    since: Annotated[
        str,
        typer.Option(
            help="Only records with this timestamp or a later one, such as 2026-09-20T12:00:00Z.",
            show_default="all",
        ),
    ] = ""
    until: Annotated[
        str, typer.Option(help="Only records with an earlier timestamp than this one.", show_default="all")
    ] = ""

    def filter(self) -> DeadLetterFilter:
        """Return the filter; raise WrongUsage for invalid times."""
        since_ms = timestamp_ms("--since", self.since) if self.since else None
        until_ms = timestamp_ms("--until", self.until) if self.until else None
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            raise WrongUsage("--since must be earlier than --until")
        return DeadLetterFilter(self.origin, self.group, self.reason, since_ms, until_ms)
