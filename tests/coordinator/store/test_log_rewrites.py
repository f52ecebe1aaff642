"""Batches that log compaction replaces or removes: all of a step or nothing, and only what is still there."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from rota_coordinator.core.log.batch import ROW_BYTES, Row
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.core.log.retention import Oldest
from rota_coordinator.store.port import LOG_SLOT, LogStore, StoreError
from tests.coordinator.store import log_rewriter
from tests.coordinator.store.log_rows import EVERYTHING, everything, headers, offsets, play, row, rows

KILLS = 10


def smaller(stored: Row, size: int) -> Row:
    """The row with fewer bytes, one record of another time, and a codec that only the log itself writes."""
    header = stored.header._replace(max_timestamp_ms=stored.header.base_timestamp_ms)
    return stored._replace(header=header, codec=256, payload=b"-" * size)


def test_a_step_replaces_and_removes_batches_at_their_offsets(tmp_path: Path) -> None:
    stored = rows(1, 5)
    replaced = smaller(stored[3], 30)

    async def change(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, stored, flush=False)
        await store.append_rows(epoch, rows(2, 2), flush=False)
        changes = [Change(stored[1].header, None), Change(stored[3].header, replaced)]
        assert await store.rewrite_rows(1, changes) == 100 + ROW_BYTES + 70
        assert await store.rewrite_rows(1, []) == 0

    async def look(store: LogStore) -> None:
        left = [stored[0], stored[2], replaced, stored[4]]
        assert await everything(store, 1) == left
        assert await everything(store, 2) == rows(2, 2)
        assert [header for log_id, header in await headers(store) if log_id == 1] == [
            each.header for each in left
        ]
        assert await store.sizes() == {1: 330 + 4 * ROW_BYTES, 2: 200 + 2 * ROW_BYTES}
        assert await store.size_between(1, 0, EVERYTHING) == 330
        assert await store.size_between(1, 20, 40) == 130
        assert await store.size_between(3, 0, EVERYTHING) == 0
        assert await store.oldest(1, 2) == [Oldest(stored[0].header, 100), Oldest(stored[2].header, 100)]
        # Within the removed batch, and behind the last one.
        assert offsets(await store.read(1, 15, EVERYTHING, 1)) == [20]
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, [row(1, 50)], flush=True)
        assert offsets(await everything(store, 1)) == [0, 20, 30, 40, 50]

    play(tmp_path, change, look)


def test_a_read_of_a_compacted_log_takes_as_many_bytes_as_one_of_another(tmp_path: Path) -> None:
    stored = rows(1, 100, 10_000)

    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, stored, flush=False)
        await store.rewrite_rows(
            1,
            [
                Change(each.header, smaller(each, 10) if at % 9 else None)
                for at, each in enumerate(stored[:-1])
            ],
        )
        assert len(await store.read(1, 0, EVERYTHING, 500)) == 50
        assert len(await everything(store, 1)) == 89
        # Retention deletes it in steps, too.
        await store.drop_rows(1, EVERYTHING)
        assert await everything(store, 1) == []

    play(tmp_path, story)


def test_a_time_is_found_among_batches_whose_latest_record_was_removed(tmp_path: Path) -> None:
    stored = [row(1, 10 * at, max_timestamp_ms=time) for at, time in enumerate([100, 500, 300, 600])]

    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, stored, flush=False)
        later = stored[1]._replace(header=stored[1].header._replace(max_timestamp_ms=200))
        await store.rewrite_rows(1, [Change(stored[1].header, later)])
        found = [await store.first_at(1, time) for time in (100, 101, 200, 201, 300, 301, 601)]
        assert [each and each.base_offset for each in found] == [0, 10, 10, 20, 20, 30, None]

    play(tmp_path, story)


def test_what_was_deleted_meanwhile_is_not_written_again(tmp_path: Path) -> None:
    stored = rows(1, 4)

    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, stored, flush=False)
        dropped = store.drop_rows(1, 20)
        rewritten = store.rewrite_rows(1, [Change(each.header, smaller(each, 40)) for each in stored[:3]])
        assert await dropped == 2 * (100 + ROW_BYTES)
        assert await rewritten == 60
        assert offsets(await everything(store, 1)) == [20, 30]

    play(tmp_path, story)


def test_nothing_is_rewritten_without_the_log_or_after_a_failed_append(tmp_path: Path) -> None:
    stored = rows(1, 2)
    changes = [Change(stored[0].header, None)]

    async def fail(store: LogStore) -> None:
        with pytest.raises(StoreError, match=f"slot {LOG_SLOT} must be claimed first"):
            await store.rewrite_rows(1, changes)
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, stored, flush=False)
        with pytest.raises(StoreError):
            # The offsets are taken.
            await store.append_rows(epoch, stored, flush=False)
        with pytest.raises(StoreError, match=f"slot {LOG_SLOT} must be claimed first"):
            await store.rewrite_rows(1, changes)
        assert await everything(store, 1) == stored
        await store.claim(LOG_SLOT)
        await store.rewrite_rows(1, changes)
        assert await everything(store, 1) == stored[1:]

    play(tmp_path, fail)


@pytest.mark.process
def test_a_process_that_is_killed_leaves_whole_steps_only(tmp_path: Path) -> None:
    chance = random.Random(11)

    async def look(store: LogStore) -> None:
        await store.claim(LOG_SLOT)
        log_rewriter.check(found := await everything(store, 1))
        assert found

    for _ in range(KILLS):
        command = [sys.executable, "-m", "tests.coordinator.store.log_rewriter", str(tmp_path / "c.db")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(2, 100)):
                writer.stdout.readline()
            writer.kill()
        play(tmp_path, look)


def test_the_check_of_whole_steps_can_fail() -> None:
    written = log_rewriter.group_of(0)
    log_rewriter.check(written)
    log_rewriter.check(log_rewriter.compacted(0))
    with pytest.raises(AssertionError):
        log_rewriter.check([*log_rewriter.compacted(0)[:1], *written[1:]])
