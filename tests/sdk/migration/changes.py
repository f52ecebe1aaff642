"""Applications for Kafka's clients, their versions for Rota, and the lines in which the two differ."""

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
CONSTRUCTORS = frozenset({"KafkaConsumer", "KafkaProducer", "Consumer", "Producer"})


class Migration(NamedTuple):
    """An application for one of Kafka's clients, and its version for Rota."""

    before: Path
    after: Path

    def difference(self) -> str:
        """The unified diff of both, as moving.md shows it."""
        before, after = (path.read_text().splitlines() for path in self)
        lines = difflib.unified_diff(before, after, self.before.name, self.after.name, lineterm="", n=0)
        return "\n".join(lines) + "\n"

    def changed_lines(self) -> tuple[set[int], set[int]]:
        """Numbers of the lines that differ, in each of the two."""
        before, after = (path.read_text().splitlines() for path in self)
        changes = [
            opcode
            for opcode in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
            if opcode[0] != "equal"
        ]
        return (
            {number for _, first, end, _, _ in changes for number in range(first + 1, end + 1)},
            {number for _, _, _, first, end in changes for number in range(first + 1, end + 1)},
        )


MIGRATIONS = {
    name: Migration(FOLDER / f"{name}.py", FOLDER / f"{name}_on_rota.py")
    for name in ("kafka_python", "confluent")
}


def imports_and_constructors(source: str) -> set[int]:
    """Numbers of the lines that import, and of those from a constructor's name to its closing bracket."""
    return {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_constructor(node)
        for number in _lines(node)
    }


def _is_constructor(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name in CONSTRUCTORS
        case _:
            return False


def _lines(node: ast.AST) -> Iterator[int]:
    assert isinstance(node, ast.stmt | ast.expr)
    assert node.end_lineno is not None
    yield from range(node.lineno, node.end_lineno + 1)
