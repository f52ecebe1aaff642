"""
Flags of the target of `rota groups reset`, and the reset that they ask for.

Beside the targets that `kubectl rota groups reset` has as well, the offsets may be in a file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rota_cli.commands.offsets_file import OffsetsFile, read_offsets
from rota_cli.commands.parsing import duration_ms, timestamp_ms
from rota_cli.commands.reset_plan import (
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToOffsets,
    TopicSelection,
    ToTimestamp,
)
from rota_cli.commands.target_flags import TARGETS, TargetFlags, flag
from rota_cli.errors import WrongUsage


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """Resets as the flags ask for them. `file` is the source of the targets, if they are in a file."""

    targets: Mapping[str, Target]
    selections: Sequence[TopicSelection]
    file: OffsetsFile | None = None


@dataclass(frozen=True, slots=True)
class CommandTargetFlags(TargetFlags):
    """Flags of the reset's target. Exactly one is given."""

    to_current: Annotated[
        bool,
        flag("to-current", "Keep the committed offsets; set the latest offset where there is none."),
    ] = False
    from_file: Annotated[
        Path | None,
        flag(
            "from-file",
            "Reset to the offsets in this file, as `rota groups offsets --export` or kafka-consumer-groups wrote it.",
        ),
    ] = None
    all_groups: Annotated[
        bool, flag("all-groups", "With --from-file: reset all groups in the file, instead of naming them.")
    ] = False

    def request(
        self, names: Sequence[str], selections: Sequence[TopicSelection], now_ms: int
    ) -> ResetRequest:
        """Return the resets of the groups named. Raise WrongUsage unless exactly one target is given; read the file."""
        targets = self._targets(now_ms)
        if len(targets) + (self.from_file is not None) != 1:
            raise WrongUsage(f"expected exactly one of {TARGETS}, --to-current or --from-file")
        if self.from_file is None:
            if self.all_groups or not names:
                raise WrongUsage("name at least one group; --all-groups requires --from-file")
            return ResetRequest(dict.fromkeys(names, targets[0]), selections)
        if selections:
            raise WrongUsage(
                "--topic cannot be combined with --from-file: remove the lines of other topics from the file"
            )
        if bool(names) == self.all_groups:
            raise WrongUsage("name at least one group, or pass --all-groups for all groups in the file")
        file = read_offsets(self.from_file)
        by_group = file.by_group(names)
        return ResetRequest({group: ToOffsets(offsets) for group, offsets in by_group.items()}, (), file)

    def _targets(self, now_ms: int) -> list[Target]:
        targets: list[Target] = []
        if self.to_earliest:
            targets.append(ToEarliest())
        if self.to_latest:
            targets.append(ToLatest())
        if self.to_current:
            targets.append(ToCurrent())
        if self.to_offset is not None:
            targets.append(ToOffset(self.to_offset))
        if self.shift_by is not None:
            targets.append(ShiftBy(self.shift_by))
        if self.to_datetime:
            targets.append(ToTimestamp(timestamp_ms("--to-datetime", self.to_datetime)))
        if self.by_duration:
            targets.append(ToTimestamp(max(now_ms - duration_ms("--by-duration", self.by_duration), 0)))
        return targets
