"""The example of the guide does what the guide says."""

import re
import runpy
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
from tests.sdk.databases import P0, P1, member
from tests.support.coordinator import serving
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


@pytest.mark.process
def test_the_example_of_state_in_a_topic_counts_every_record_once(tmp_path: Path) -> None:
    (example,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        if "TopicStore" in block
    ]
    (tmp_path / "example.py").write_text(example)
    names: dict[str, Any] = runpy.run_path(str(tmp_path / "example.py"))

    def read_until(end: int) -> Callable[[tuple[str, int], int], Sequence[Record]]:
        def read_keys(partition: tuple[str, int], offset: int) -> Sequence[Record]:
            some = [record for record in read(partition, offset) if record.offset < end]
            return [record._replace(key=b"%d" % (record.offset % 3)) for record in some]  # type: ignore[arg-type]

        return read_keys

    with serving(tmp_path) as coordinator:
        servers = f"rota://{coordinator.address}"
        rota.create_topics(servers, {"counts": 1})
        for generation, end in ((1, 13), (2, RECORDS)):
            names["count"](servers, member(generation), P1, read_until(end))
        with rota.LogReader(servers, read_committed=True) as reader:
            records = [record for batch in reader.read("counts", 0) for record in batch]
    assert {record.key: record.value for record in records} == {b"0": b"9", b"1": b"8", b"2": b"8"}
