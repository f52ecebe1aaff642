"""The rows that a coordinator keeps in memory: a read finds in them what the file has, or nothing."""

from random import Random

import pytest

from rota_coordinator.core.log.batch import Control, Header, Row
from rota_coordinator.runtime import recent_rows
from rota_coordinator.runtime.recent_rows import RecentRows


def row(log_id: int, offset: int, count: int, size: int) -> Row:
    return Row(
        log_id,
        Header(offset, count, 0, 0, -1, -1, -1, transactional=False, control=Control.RECORDS),
        0,
        0,
        b"v" * size,
    )


def expected(rows: list[Row], log_id: int, offset: int, until: int, max_bytes: int) -> list[Row]:
    """Return the store's batches from an offset at which a row begins."""
    found: list[Row] = []
    for each in rows:
        if each.log_id == log_id and offset <= each.header.base_offset < until:
            max_bytes -= len(each.payload)
            if found and max_bytes < 0:
                break
            found.append(each)
    return found


def test_a_read_gives_what_the_store_gives_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "BYTES_MAX", 200)
    chance = Random(7)
    recent, rows, ends = RecentRows(), list[Row](), [0, 0, 0]
    answered = 0
    for _ in range(2_000):
        some = []
        for _ in range(chance.randint(1, 3)):
            log_id = chance.randrange(3)
            some.append(row(log_id, ends[log_id], chance.randint(1, 4), chance.randint(1, 30)))
            ends[log_id] = some[-1].header.next_offset
        rows += some
        recent.remember(some)
        assert recent._bytes == sum(len(each.payload) for each in recent._rows) <= 200
        asked = chance.choice(rows[-12:])
        begin = asked.header.base_offset + chance.choice([0, 0, 1])
        until, max_bytes = begin + chance.randint(1, 12), chance.randint(1, 80)
        found = recent.read(asked.log_id, begin, until, max_bytes)
        if found:
            answered += 1
            assert found == expected(rows, asked.log_id, begin, until, max_bytes)
    assert answered > 500


def test_nothing_is_left_after_the_log_was_given_up() -> None:
    recent = RecentRows()
    recent.remember([row(1, 0, 2, 10)])
    assert recent.read(1, 0, 2, 100)
    recent.clear()
    assert recent.read(1, 0, 2, 100) == []
    assert recent._bytes == 0


def test_a_row_above_the_limit_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "BYTES_MAX", 20)
    recent = RecentRows()
    recent.remember([row(1, 0, 2, 10), row(1, 2, 1, 30)])
    assert recent.read(1, 0, 3, 100) == []
    assert recent.read(1, 2, 3, 100) == []
