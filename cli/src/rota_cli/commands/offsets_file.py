"""
Files of committed offsets, which `rota groups offsets --export` writes and `rota groups reset --from-file` reads.

    bytes → entries with their lines → checks against the groups of the command and the topics there are → offsets by group

A file is refused whole for its first wrong line, with that line and the remedy.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rota.records import TopicPartition
from rota_cli.clusters.port import Offsets
from rota_cli.commands.offsets_formats import (
    SEVERAL_GROUPS,
    FileEntry,
    Malformed,
    format_csv,
    format_json,
    parse_csv,
    parse_json,
)
from rota_cli.errors import Failure, NotFound, WrongUsage
from rota_cli.output.units import format_partitions

# 200,000 partitions of topics and groups with the longest names.
FILE_BYTES_MAX = 128 << 20


@dataclass(frozen=True, slots=True)
class OffsetsFile:
    """Entries of a file, in its order. Invariant: all have a group or none has one; each partition of a group occurs once."""

    name: str
    entries: Sequence[FileEntry]

    def by_group(self, named: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """
        Return the offsets of the groups of a command; without names, those of every group in the file. Raise
        WrongUsage if the file has another group, or lacks one.
        """
        found: dict[str, dict[TopicPartition, int]] = {group: {} for group in named}
        for entry in self.entries:
            group = self._group_of(entry, named)
            found.setdefault(group, {})[entry.partition] = entry.offset
        missing = [group for group, offsets in found.items() if not offsets]
        if missing:
            raise WrongUsage(f"{self.name} has no offsets of group {missing[0]}: add them, or omit the group")
        return found

    def _group_of(self, entry: FileEntry, named: Collection[str]) -> str:
        if entry.group is None:
            if len(named) != 1:
                raise WrongUsage(
                    f"{self.name}:{entry.line}: the group is missing: expected {SEVERAL_GROUPS}, or name one group"
                )
            return next(iter(named))
        if named and entry.group not in named:
            raise WrongUsage(
                f"{self.name}:{entry.line}: these are offsets of group {entry.group}: remove the line, or name this group as well"
            )
        return entry.group

    def check_partitions(self, counts: Mapping[str, int]) -> None:
        """Raise NotFound for the first partition that does not exist; `counts` has the partitions of each topic."""
        for entry in self.entries:
            topic, number = entry.partition
            count = counts.get(topic, 0)
            if number < count:
                continue
            problem = f"topic {topic} has no partition {number} (it has {count})"
            if not count:
                problem = f"topic {topic} not found"
            raise NotFound(
                f"{self.name}:{entry.line}: {problem}: correct or remove the line (see `rota topics list`)"
            )


def parse_offsets(name: str, data: bytes) -> OffsetsFile:
    """Parse a file: JSON if its name ends in .json, else CSV. Raise WrongUsage if it is malformed."""
    try:
        # A spreadsheet may begin it with a byte order mark.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise WrongUsage(f"{name}:{line}: is not UTF-8: save the file as UTF-8") from None
    parse = parse_json if _is_json(name) else parse_csv
    try:
        entries = list(_checked(parse(text)))
    except Malformed as malformed:
        raise WrongUsage(f"{name}:{malformed.line}: {malformed}: correct or remove the line") from None
    if not entries:
        raise WrongUsage(f"{name} has no offsets: write it with `rota groups offsets GROUP --export {name}`")
    return OffsetsFile(name, entries)


def _checked(entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
    """Yield the entries. Raise Malformed for a partition that occurs twice, and for a group that is given on some lines only."""
    lines: dict[tuple[str | None, TopicPartition], int] = {}
    has_group: bool | None = None
    for entry in entries:
        if has_group not in (None, entry.group is not None):
            raise Malformed(entry.line, "expected a group on all lines, or on none")
        has_group = entry.group is not None
        key = (entry.group, entry.partition)
        if key in lines:
            raise Malformed(
                entry.line, f"{format_partitions([entry.partition])} is on line {lines[key]} already"
            )
        lines[key] = entry.line
        yield entry


def format_offsets(name: str, offsets: Mapping[str, Offsets], *, with_group: bool) -> str:
    """Format offsets by group in the format of the file's name; CSV of one group may omit the group."""
    return format_json(offsets) if _is_json(name) else format_csv(offsets, with_group=with_group)


def _is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def read_offsets(file: Path) -> OffsetsFile:
    """Read and parse a file. Raise NotFound, WrongUsage or Failure."""
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFound(f"file {file} does not exist: pass an existing file with --from-file") from None
    except OSError as error:
        raise Failure(
            f"cannot read {file} ({error.strerror}): pass a readable file with --from-file"
        ) from None
    if len(data) > FILE_BYTES_MAX:
        raise WrongUsage(
            f"{file} is larger than {FILE_BYTES_MAX >> 20} MiB: split it by group, and reset one group after the other"
        )
    return parse_offsets(str(file), data)


def write_offsets(file: Path, text: str) -> None:
    """Write a file, replacing an existing one; a file that cannot be written whole is not changed. Raise Failure."""
    try:
        if file.exists() and not file.is_file():
            # Such as /dev/stdout.
            file.write_text(text, encoding="utf-8")
            return
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(file)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
    except OSError as error:
        raise Failure(f"cannot write {file} ({error.strerror}): pass another file with --export") from None
