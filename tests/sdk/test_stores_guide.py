"""The example of the guide does what the guide says."""

import re
import runpy
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.sdk.databases import P0, P1, member
from tests.support.tree import REPO

GUIDE = REPO / "docs" / "guide" / "stores.md"
RECORDS = 25


class Record(NamedTuple):
    offset: int
    key: str
    value: int


def read(partition: tuple[str, int], offset: int) -> Sequence[Record]:
    """Ten records at most."""
    end = min(offset + 10, RECORDS)
    return [Record(number, f"{partition[1]}/{number}", number) for number in range(offset, end)]


def test_the_example_keeps_every_result_once_in_each_generation(tmp_path: Path) -> None:
    example = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    (tmp_path / "example.py").write_text(example)
    names: dict[str, Any] = runpy.run_path(str(tmp_path / "example.py"))

    with closing(sqlite3.connect(tmp_path / "application.db")) as connection:
        connection.execute("CREATE TABLE results (key TEXT PRIMARY KEY, value INTEGER)")
        for generation in (1, 2):
            names["work"](connection, member(generation), [P0, P1], read)
        results = connection.execute("SELECT COUNT(*), SUM(value) FROM results").fetchone()
        offsets = connection.execute("SELECT next_offset, generation FROM rota_offsets").fetchall()

    assert results == (2 * RECORDS, 2 * sum(range(RECORDS)))
    assert offsets == [(RECORDS, 2), (RECORDS, 2)]
