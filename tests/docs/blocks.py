"""Fenced blocks of a page of the docs: commands to run, files to save."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.support.tree import REPO

DOCS = REPO / "docs"
FENCED = re.compile(r"^```(\w*) *([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One of them: its language, what else stands behind the fence, and the text."""

    language: str
    info: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its lines, without those that are empty."""
        return [line for line in self.text.splitlines() if line.strip()]


def blocks(page: str) -> list[Block]:
    """All of a page below docs/, from top to bottom."""
    return [Block(*found) for found in FENCED.findall((DOCS / page).read_text())]


def save_files(page: str, folder: Path) -> None:
    """Save what the page says to save."""
    for block in blocks(page):
        kind, _, name = block.info.partition("=")
        if kind == "file":
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)


def named(page: str, name: str) -> str:
    """The commands of the block that is marked `run=NAME`."""
    (found,) = (block.text for block in blocks(page) if block.info == f"run={name}")
    return found
