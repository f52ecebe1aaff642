"""Files and functions stay small enough to be read whole."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tree import REPO, written_python

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70


def functions(source: str) -> Iterator[tuple[str, int, int]]:
    """(name, first line, number of lines) of every function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def too_long(path: str, source: str) -> list[str]:
    """One sentence for each thing in the file that is too long, with its remedy."""
    found = []
    lines = source.count("\n")
    if lines > FILE_LINES_MAX:
        found.append(f"{path}: {lines} lines, {FILE_LINES_MAX} allowed; split it by reason to change")
    found += [
        f"{path}:{line} {name}: {length} lines, {FUNCTION_LINES_MAX} allowed; "
        "keep the branches here and move straight-line work into functions of their own"
        for name, line, length in functions(source)
        if length > FUNCTION_LINES_MAX
    ]
    return found


def test_files_and_functions_are_short() -> None:
    offenders = [
        message
        for path in written_python()
        for message in too_long(str(path.relative_to(REPO)), path.read_text())
    ]
    assert offenders == [], "\n".join(offenders)


@pytest.mark.parametrize(("body_lines", "sentences"), [(FUNCTION_LINES_MAX - 1, 0), (FUNCTION_LINES_MAX, 1)])
def test_the_limit_counts_the_line_with_the_name(body_lines: int, sentences: int) -> None:
    assert len(too_long("x.py", "def f():\n" + "    pass\n" * body_lines)) == sentences


def test_a_long_file_is_found() -> None:
    assert len(too_long("x.py", "\n" * (FILE_LINES_MAX + 1))) == 1


def test_something_was_looked_at() -> None:
    assert Path(__file__) in written_python()
