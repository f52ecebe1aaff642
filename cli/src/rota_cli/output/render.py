"""
Render results as a table for people, as JSON or YAML for programs.

All formats render the same dicts. A table's headings are the field names; an unknown value is a dash, never a zero.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from rota_cli.output.console import print_err, print_out

Row = Mapping[str, object]
UNKNOWN = "-"
GAP = "   "


class OutputFormat(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", help="Output format: table for people, json or yaml for programs."),
]


def print_list(rows: Sequence[Row], output: OutputFormat, columns: Sequence[str], *, none: str) -> None:
    """Print a list; `none` is the message for people if it is empty."""
    if output is not OutputFormat.TABLE:
        print_data([dict(row) for row in rows], output)
    elif rows:
        print_out(render_table(rows, columns))
    else:
        print_err(none)


def print_data(data: object, output: OutputFormat) -> None:
    """Print data as JSON or YAML."""
    if output is OutputFormat.JSON:
        print_out(json.dumps(data, indent=2, ensure_ascii=False))
        return
    # Slow to import, and needed for YAML only.
    import yaml

    print_out(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip("\n"))


def render_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Render rows in columns of minimal width, numbers right-aligned."""
    lines = [[column_heading(column) for column in columns]]
    lines += [[format_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [any(_is_number(row.get(column)) for row in rows) for column in columns]
    return "\n".join(
        GAP.join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def render_fields(row: Row, names: Sequence[str]) -> str:
    """Render one row with a line for each field."""
    width = max(map(len, names)) + 1
    return "\n".join(
        f"{name.replace('_', ' ') + ':':<{width}} {format_cell(row.get(name))}".rstrip() for name in names
    )


def column_heading(column: str) -> str:
    """Return the heading of a column in kubectl's style."""
    return column.upper().replace("_", "-")


def format_cell(value: object) -> str:
    """Format a value for a table; unknown is a dash."""
    if value is None or value == "" or value == []:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(format_cell, value))
    return str(value)
