"""Batches that are dropped from the embedded log are deleted step by step, and their space is freed."""

import asyncio
from pathlib import Path

import pytest

from rota_coordinator.store import sqlite_file, sqlite_rows, sqlite_writer
from rota_coordinator.store.port import LOG_SLOT, LogStore
from tests.coordinator.store.log_rows import COUNT, everything, headers, offsets, play, rows


def test_only_whole_batches_before_the_offset_are_dropped_in_steps_and_others_write_meanwhile(
    tmp_path: Path,
) -> None:
    count = sqlite_rows.DROPPED_ROWS * 3

    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, rows(1, count, 10), flush=False)
        await store.append_rows(epoch, rows(2, 2), flush=False)
        ends: list[str] = []
        drop = store.drop_rows(1, count * COUNT - 15)
        drop.add_done_callback(lambda _: ends.append("drop"))
        append = store.append_rows(epoch, rows(2, 1, first=2), flush=False)
        append.add_done_callback(lambda _: ends.append("append"))
        await asyncio.gather(drop, append)
        assert ends == ["append", "drop"]
        assert offsets(await everything(store, 1)) == [(count - 2) * COUNT, (count - 1) * COUNT]
        assert offsets(await everything(store, 2)) == [0, 10, 20]
        await store.drop_rows(1, 0)
        await store.drop_rows(3, None)
        assert len(await everything(store, 1)) == 2

    play(tmp_path, story)


def test_the_wal_stays_short_below_readers_and_space_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    megabyte = 1_000_000
    monkeypatch.setattr(sqlite_writer, "SHRINK_ABOVE_PAGES", 64)
    # Readers are always in the WAL: it only becomes short because the writer waits for a moment without them.
    monkeypatch.setattr(sqlite_file, "WAL_BYTES_MAX", 8 * megabyte)
    file, wal = tmp_path / "c.db", tmp_path / "c.db-wal"

    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        ended = asyncio.Event()

        async def go_on_reading() -> None:
            while not ended.is_set():
                await everything(store, 1)

        readers = [asyncio.create_task(go_on_reading()) for _ in range(4)]
        await store.append_rows(log, rows(1, 2, 100_000), flush=False)
        largest = 0
        for number in range(40):
            await store.append_rows(log, rows(2, 1, megabyte, first=number), flush=False)
            largest = max(largest, file.stat().st_size)
            if number % 5 == 4:
                await store.drop_rows(2, (number + 1) * COUNT)
        ended.set()
        await asyncio.gather(*readers)
        assert largest < 20 * megabyte
        assert wal.stat().st_size < 20 * megabyte

    async def look(store: LogStore) -> None:
        # A piece of the room is given back each time that a drop ends.
        for _ in range(20):
            await store.drop_rows(9, None)
        assert len(await headers(store)) == 2

    play(tmp_path, story, look)
    assert file.stat().st_size < megabyte
