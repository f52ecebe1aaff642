"""The page with the lines of the threat model names tests that exist, or says what is missing."""

import ast
import re

import pytest

from tests.support.tree import REPO

PAGE = (REPO / "docs" / "reference" / "security-checklist.md").read_text()
LINES = re.findall(r"^\| ([0-9]+) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
# Where a line names no test, it begins with one of these.
WITHOUT = ("later: ", "none: ", "`make check`: ")


def test_every_line_of_the_model_is_there_once() -> None:
    assert [int(number) for number, _, _ in LINES] == list(range(1, 41))


@pytest.mark.parametrize(("number", "proof"), [(number, proof) for number, _, proof in LINES])
def test_a_line_names_tests_that_exist_or_what_is_missing(number: str, proof: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", proof)
    assert named or proof.startswith(WITHOUT), f"line {number} has no test"
    for path, name in named:
        tree = ast.parse((REPO / "tests" / path).read_text())
        functions = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
        assert name in functions, f"line {number}: {path} has no {name}"
