"""
Retired words stay out of identifiers, docstrings begin with a verb or a noun, and machines are not persons.

The words of the field are in docs/glossary.md. `python -m tests.architecture.test_vocabulary FOLDER` lists a folder's offences, each
with its line.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from typing_extensions import override

from tests.support.tree import REPO, files, written_python

# Parts of identifiers, as `names.py` and `ClassNames` are split. Each has a word of the field: see docs/glossary.md.
RETIRED = frozenset(
    re.findall(
        r"\w+",
        """
    alike beyond board caution complaint complaints condemn desk doomed door doors errand errands facts fate
    forgive gift hands hear heard heed heirs hurry journal leash letter letters letting listen loner near obey
    parcel permit piece pieces place places repacking roll sentence shelf spoken stood suspects tell telling
    tend told trouble troubles water wish witness words
    """,
    )
)
# Sequences of parts in which a retired word is a word of the field.
FIELD_TERMS = (
    ("dead", "letter"),  # a record that failed permanently
    ("dead", "letters"),
    ("water", "fill"),  # the algorithm of the assignors' quotas
    ("water", "level"),
    ("high", "water"),  # Kafka's high watermark
    ("in", "place"),
    ("reserved", "words"),
    ("roll", "back"),  # SQL's statement ROLLBACK
)
# Methods of the standard library that subclasses and adapters repeat.
FOREIGN = frozenset({"listen"})
REFUSED_OPENINGS = frozenset(
    re.findall(
        r"\w+",
        """
    What Whether Who Whoever How Where Somebody Nobody Everybody Anybody It They This That These Those He She We You
    """,
    )
)
PERSONS = re.compile(r"\b(some|no|every|any)body\b|\bwhoever\b", re.IGNORECASE)


class Offence(NamedTuple):
    """One place in one file that breaks a rule. `line` counts from 1."""

    path: str
    line: int
    rule: str

    @override
    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}"


def parts_of(identifier: str) -> list[str]:
    """Split an identifier at underscores and at capitals, in lower case: `DeadLetter` and `dead_letter` are equal."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)]


@cache
def retired_in(identifier: str) -> str:
    """Return the first retired word of an identifier; empty: it has none."""
    parts = parts_of(identifier)
    if identifier in FOREIGN:
        return ""
    for number, part in enumerate(parts):
        around = (tuple(parts[number - 1 : number + 1]), tuple(parts[number : number + 2]))
        if part in RETIRED and not any(pair in FIELD_TERMS for pair in around):
            return part
    return ""


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names that a module defines, with their lines; a use of a name is the offence of its definition."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case _:
                pass


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each docstring with the line on which its module, class or function begins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def offences_in(path: str, source: str) -> Iterator[Offence]:
    """Yield what breaks a rule in one Python file. `path` is relative to the repository."""
    tree = ast.parse(source)
    yield from _name_offences(path, tree)
    yield from _docstring_offences(path, tree)
    if "src" in Path(path).parts:
        yield from _text_offences(path, tree)


def _name_offences(path: str, tree: ast.AST) -> Iterator[Offence]:
    files_and_folders = ((1, part) for part in Path(path).with_suffix("").parts)
    for line, name in chain(files_and_folders, identifiers(tree)):
        if retired_in(name):
            yield Offence(path, line, f"the name {name} has the retired word {retired_in(name)!r}")


def _docstring_offences(path: str, tree: ast.AST) -> Iterator[Offence]:
    for line, text in docstrings(tree):
        first = text.split(maxsplit=1)[0].rstrip(",.:;")
        if first in REFUSED_OPENINGS:
            yield Offence(path, line, f"a docstring begins with {first!r}: begin with a verb or a noun")
        if PERSONS.search(text):
            yield Offence(path, line, "a docstring speaks of persons: name the process or the client")


def _text_offences(path: str, tree: ast.AST) -> Iterator[Offence]:
    ours = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in ours:
            continue
        if PERSONS.search(node.value):
            yield Offence(path, node.lineno, "a text speaks of persons: name the process or the client")


def all_offences() -> Iterator[Offence]:
    """Yield the offences of every Python file of the repository except generated ones."""
    for file in written_python():
        yield from offences_in(str(file.relative_to(REPO)), file.read_text())


def test_names_and_texts_use_terms_of_the_field() -> None:
    assert [str(offence) for offence in all_offences()] == []


def test_no_module_has_the_retired_name() -> None:
    assert [str(file.relative_to(REPO)) for file in files() if file.name == "words.py"] == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("def tell(): ...", "'tell'"),
        ("class LateLetters: ...", "'letters'"),
        ("def f(place): ...", "'place'"),
        ("self.shelf = 1", "'shelf'"),
        ('"""Whether it is."""', "begins with 'Whether'"),
        ('def f():\n    """Somebody, who was let in."""', "begins with 'Somebody'"),
        ('class A:\n    """A queue that nobody reads."""', "speaks of persons"),
        ('print("whoever reads it")', "a text speaks of persons"),
    ],
)
def test_each_rule_finds_what_it_is_for(source: str, rule: str) -> None:
    assert any(rule in offence.rule for offence in offences_in("part/src/part/module.py", source))


@pytest.mark.parametrize(
    "source",
    [
        "class DeadLetterWriter: ...",
        "def water_fill(): ...",
        "replaced = index = 1",
        'def f():\n    """Enqueue an event; the loop handles events in FIFO order on its next turn."""',
    ],
)
def test_terms_of_the_field_are_no_offence(source: str) -> None:
    assert list(offences_in("part/src/part/module.py", source)) == []


if __name__ == "__main__":
    for each in all_offences():
        if not sys.argv[1:] or each.path.startswith(sys.argv[1]):
            sys.stdout.write(f"{each}\n")
