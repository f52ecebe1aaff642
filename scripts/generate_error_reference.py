"""Writes docs/reference/errors.md from rota.errors. A test compares."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from rota import errors

FILE = Path(__file__).parents[1] / "docs" / "reference" / "errors.md"
HEAD = """<!-- Generated from sdk/src/rota/errors.py by scripts/generate_error_reference.py; do not edit. -->
# Errors

What the SDK raises, all of it below `rota.errors.RotaError`, under the names and numbers that Kafka gives it. `error.name` is
the name; `error.retriable` says whether asking again can help (Rota has done so already, until its time was up), `error.fatal`
whether the object that raised it is of no use any more. The `rota` command says the same sentences and ends with
[these codes](cli.md#exit-codes).
"""
TABLE = """
| class | name | number | retriable | |
|---|---|---|---|---|
"""


def written() -> str:
    """The page."""
    of_server = [kind for kind in kinds() if not issubclass(kind, errors._Said)]
    of_this_side = [kind for kind in kinds() if issubclass(kind, errors._Said)]
    return (
        f"{HEAD}\n## From a server\n{TABLE}{rows(of_server)}\n"
        f"\n## From this side\n\nTheir sentences are made where they happen.\n{TABLE}{rows(of_this_side)}\n"
    )


def kinds() -> Iterator[type[errors.RotaError]]:
    """All that there are for people, in the order of the file."""
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.RotaError) and not kind.__name__.startswith("_"):
            yield kind


def rows(found: Sequence[type[errors.RotaError]]) -> str:
    """Lines of the table."""
    return "\n".join(
        f"| `{kind.__name__}` | {kind.name} | {kind.code if kind.code != errors.NO_CODE else '–'} | "
        f"{'yes' if kind.retriable else ''} | {' '.join((kind.__doc__ or '').split())} |"
        for kind in found
    )


if __name__ == "__main__":
    FILE.write_text(written())
