"""Flags of the target of an offset reset, which `rota groups reset` and `kubectl rota groups reset` share."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rota_cli.commands.parsing import INT64_MAX

TARGETS = "--to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by, --by-duration"


def flag(name: str, help_text: str, **options: Any) -> Any:  # noqa: ANN401  typer's own words
    """Declare a flag."""
    return typer.Option(f"--{name}", help=help_text, **options)


@dataclass(frozen=True, slots=True)
class TargetFlags:
    """Flags of the reset's target. At most one is given."""

    to_earliest: Annotated[bool, flag("to-earliest", "Reset to the earliest offset.")] = False
    to_latest: Annotated[bool, flag("to-latest", "Reset to the latest offset.")] = False
    to_offset: Annotated[
        int | None, flag("to-offset", "Reset every partition to this offset.", min=0, max=INT64_MAX)
    ] = None
    to_datetime: Annotated[
        str,
        flag("to-datetime", "Reset to the first offset at or after this time, such as 2026-09-20T12:00:00Z."),
    ] = ""
    shift_by: Annotated[
        int | None,
        flag(
            "shift-by",
            "Shift the committed offsets by this many records; a negative number shifts back.",
            min=-INT64_MAX,
            max=INT64_MAX,
        ),
    ] = None
    by_duration: Annotated[
        str,
        flag("by-duration", "Reset to the first offset at or after this long ago, such as PT1H30M or 7d."),
    ] = ""
