"""A disk that is full, read-only or broken, and processes that are killed: what was acknowledged is never lost."""

import asyncio
import contextlib
import random
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from rota_coordinator.store import sqlite_file
from rota_coordinator.store.port import LOG_SLOT, LogStore, SlotLost, StoreError
from rota_coordinator.store.sqlite import SqliteStore, open_store
from tests.coordinator.store import log_writer
from tests.coordinator.store.disk import Disk, Fault
from tests.coordinator.store.log_rows import everything, play, rows
from tests.coordinator.store.records import numbers, record

KILLS = 10
POWER_CUTS = 12
STEPS = 40


def new_disk(seed: int = 0) -> Disk:
    return Disk(f"disk-{uuid.uuid4().hex}", seed)


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.READ_ONLY, Fault.FLUSH])
def test_a_disk_that_fails_is_said_and_nothing_is_taken_until_it_is_well(
    tmp_path: Path, fault: Fault
) -> None:
    disk = new_disk()

    async def story() -> None:
        store = open_store(tmp_path / "c.db", disk.name)
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 3, 10_000), flush=True)

        disk.fault = fault
        with pytest.raises(StoreError, match=r"could not be written .*; check the disk"):
            await store.append_rows(log, rows(1, 1, 10_000, first=3), flush=True)
        with pytest.raises(SlotLost):
            await store.append_rows(log, rows(1, 1, 10_000, first=4), flush=False)
        with pytest.raises(StoreError, match="check the disk"):
            await store.claim(LOG_SLOT)
        with pytest.raises(StoreError, match="check the disk"):
            await store.claim(3)
        # The one that is broken can be read still.
        assert (await everything(store, 1))[:3] == rows(1, 3, 10_000)

        disk.fault = Fault.NONE
        log, _ = await store.claim(LOG_SLOT)
        there = len(await everything(store, 1))
        await store.append_rows(log, rows(1, 1, 10_000, first=there), flush=True)
        await store.close()

    async def look(store: LogStore) -> None:
        found = await everything(store, 1)
        # Nobody knows whether the one that was refused is there; the later one was never written.
        assert len(found) in (4, 5)
        assert found == rows(1, len(found), 10_000)

    asyncio.run(story())
    play(tmp_path, look)


def test_groups_that_were_not_written_to_do_not_trust_the_file_either(tmp_path: Path) -> None:
    disk = new_disk()

    async def story() -> None:
        store = open_store(tmp_path / "c.db", disk.name)
        (log, _), (group, _) = await store.claim(LOG_SLOT), await store.claim(3)
        disk.fault = Fault.FLUSH
        with pytest.raises(StoreError, match="could not be written"):
            await store.append_rows(log, rows(1, 1), flush=True)
        with pytest.raises(
            StoreError, match=r"cannot be written .*no group or topic is served until writing works"
        ):
            await store.append(3, group, [record(1)])
        disk.fault = Fault.NONE
        group, _ = await store.claim(3)
        await store.append(3, group, [record(2)])
        assert numbers(await store.load(3)) == [2]
        await store.close()

    asyncio.run(story())


def test_a_flush_that_fails_in_a_checkpoint_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_PAGES", 10)
    disk = new_disk()

    async def story() -> None:
        store = open_store(tmp_path / "c.db", disk.name)
        log, _ = await store.claim(LOG_SLOT)
        disk.fault = Fault.FLUSH
        # It is in the file, and that is all that was asked for. The checkpoint behind it fails.
        await store.append_rows(log, rows(1, 1, 100_000), flush=False)
        with pytest.raises(StoreError, match="no group or topic is served until writing works"):
            await store.append_rows(log, rows(1, 1, first=1), flush=False)
        disk.fault = Fault.NONE
        log, _ = await store.claim(LOG_SLOT)
        assert await everything(store, 1) == rows(1, 1, 100_000)
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(POWER_CUTS))
def test_what_was_flushed_survives_flushes_that_fail_and_the_power_that_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_PAGES", 15)
    disk = new_disk(seed)
    chance = random.Random(seed)
    flushed_at: list[int] = []

    async def story() -> None:
        store = open_store(tmp_path / "c.db", disk.name)
        disk.unwell = 0.15
        count, flushed, epoch = 0, 0, 0
        for _ in range(STEPS):
            try:
                if chance.random() < 0.1:
                    epoch = 0
                    await store.close()
                    store = opened_at_last(tmp_path / "c.db", disk)
                if not epoch:
                    epoch, _ = await store.claim(LOG_SLOT)
                    count = len(await everything(store, 1))
                flush = chance.random() < 0.4
                await store.append_rows(epoch, rows(1, 1, 6_000, first=count), flush=flush)
                count += 1
                flushed = count if flush else flushed
            except StoreError:
                epoch = 0
            if chance.random() < 0.5:
                disk.cut_power(tmp_path / f"{len(flushed_at)}")
                flushed_at.append(flushed)
        assert count > STEPS / 4
        disk.unwell = 0.0
        await store.close()

    asyncio.run(story())
    assert flushed_at

    found = [asyncio.run(left(tmp_path / f"{cut}")) for cut in range(len(flushed_at))]
    assert all(there >= flushed for there, flushed in zip(found, flushed_at, strict=True)), (
        found,
        flushed_at,
    )


def opened_at_last(file: Path, disk: Disk) -> SqliteStore:
    """The store, which a flush that fails may keep from being opened."""
    while True:
        with contextlib.suppress(StoreError):
            return open_store(file, disk.name)


async def left(folder: Path) -> int:
    """Return the number of rows in a file; they are the first that were written."""
    store = open_store(folder / "c.db")
    found = await everything(store, 1)
    await store.close()
    assert found == rows(1, len(found), 6_000)
    return len(found)


@pytest.mark.process
def test_a_writer_that_is_killed_leaves_all_that_it_acknowledged_and_no_half_of_a_write(
    tmp_path: Path,
) -> None:
    chance = random.Random(5)
    acknowledged = 0

    async def look(store: LogStore) -> None:
        found = numbers(await store.load(3))
        assert len(found) >= acknowledged
        assert found == list(range(len(found)))
        for log_id in (1, 2):
            assert await everything(store, log_id) == rows(log_id, len(found), log_writer.SIZE)

    for _ in range(KILLS):
        command = [sys.executable, "-m", "tests.coordinator.store.log_writer", str(tmp_path / "c.db")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 300)):
                acknowledged = int(writer.stdout.readline()) + 1
            writer.kill()
            for line in writer.stdout:
                acknowledged = int(line) + 1
        play(tmp_path, look)
    assert acknowledged > KILLS
