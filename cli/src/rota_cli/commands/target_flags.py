"""Flags of the target of an offset reset, which `rota groups reset` and `kubectl rota groups reset` share."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rota_cli.commands.parsing import duration_ms, timestamp_ms
from rota_cli.commands.reset_plan import ShiftBy, Target, ToEarliest, ToLatest, ToOffset, ToTimestamp
from rota_cli.errors import WrongUsage

INT64_MAX = 2**63 - 1
TARGETS = "--to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by, --by-duration"


def flag(name: str, help_text: str, **options: Any) -> Any:  # noqa: ANN401  typer's own words
    """Declare a flag."""
    return typer.Option(f"--{name}", help=help_text, **options)


@dataclass(frozen=True, slots=True)
class TargetFlags:
    """Flags of the reset's target. Exactly one is given."""

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

    def target(self, now_ms: int) -> Target:
        """Return the target; raise WrongUsage unless exactly one is given."""
        targets: list[Target] = []
        if self.to_earliest:
            targets.append(ToEarliest())
        if self.to_latest:
            targets.append(ToLatest())
        if self.to_offset is not None:
            targets.append(ToOffset(self.to_offset))
        if self.shift_by is not None:
            targets.append(ShiftBy(self.shift_by))
        if self.to_datetime:
            targets.append(ToTimestamp(timestamp_ms("--to-datetime", self.to_datetime)))
        if self.by_duration:
            targets.append(ToTimestamp(max(now_ms - duration_ms("--by-duration", self.by_duration), 0)))
        if len(targets) != 1:
            raise WrongUsage(
                "expected exactly one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by or --by-duration"
            )
        return targets[0]
