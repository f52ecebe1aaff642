"""Generate docs/reference/errors.md from `rota.errors`; a test compares the two."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from rota import errors

FILE = Path(__file__).parents[1] / "docs" / "reference" / "errors.md"
HEAD = """<!-- Generated from sdk/src/rota/errors.py by scripts/generate_error_reference.py; do not edit. -->
# Errors

Every exception of the SDK derives from `rota.errors.RotaError`. `error.name` and `error.code` are Kafka's. `error.retriable` errors
were retried by Rota until the call's timeout; after an `error.fatal` error the object that raised it must be closed. The `rota`
command prints the same messages and exits with [these codes](cli.md#exit-codes).
"""
TABLE = """
| class | name | code | retriable | message |
|---|---|---|---|---|
"""


def written() -> str:
    """Render the page."""
    of_server = [kind for kind in kinds() if not issubclass(kind, errors._SdkError)]
    of_sdk = [kind for kind in kinds() if issubclass(kind, errors._SdkError)]
    return (
        f"{HEAD}\n## Answered by a server\n{TABLE}{rows(of_server)}\n"
        f"\n## Raised by the SDK\n\nThe message names the argument, address or partition.\n{TABLE.replace('message', 'meaning')}{rows(of_sdk)}\n"
    )


def kinds() -> Iterator[type[errors.RotaError]]:
    """Yield all public error classes, in the order of the file."""
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.RotaError) and not kind.__name__.startswith("_"):
            yield kind


def rows(found: Sequence[type[errors.RotaError]]) -> str:
    """Render one table row for each class."""
    return "\n".join(
        f"| `{kind.__name__}` | {kind.name} | {kind.code if kind.code != errors.NO_CODE else '–'} | "
        f"{'yes' if kind.retriable else ''} | {text_of(kind)} |"
        for kind in found
    )


def text_of(kind: type[errors.RotaError]) -> str:
    """Return the message of the class, else its docstring."""
    return kind.message if "message" in vars(kind) else " ".join((kind.__doc__ or "").split())


if __name__ == "__main__":
    FILE.write_text(written())
