"""The embedded store: one process has the file, and only a file that is a database is believed."""

import asyncio
from pathlib import Path

import apsw
import pytest
from typing_extensions import override

from rota_coordinator.store import batches, sqlite_schema
from rota_coordinator.store.port import LOG_SLOT, StoreError
from rota_coordinator.store.sqlite import open_store
from rota_coordinator.store.sqlite_schema import connect
from tests.coordinator.store.records import numbers, record


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "c.db")
        with pytest.raises(StoreError, match="in use by another coordinator"):
            open_store(tmp_path / "c.db")
        await store.close()
        await open_store(tmp_path / "c.db").close()

    asyncio.run(body())


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.db").write_bytes(b"this is no database, and it is long enough to be looked at" * 20)

    async def body() -> None:
        with pytest.raises(StoreError, match="cannot be opened"):
            open_store(tmp_path / "c.db")

    asyncio.run(body())


class WithoutTemporaryFolder(apsw.VFS):
    """SQLite's own way to files, on a machine where a temporary file cannot be created."""

    @override
    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if name is None:
            raise apsw.CantOpenError("there is no folder for temporary files")
        return apsw.VFSFile("unix", name, flags)


def test_a_change_of_many_pages_needs_no_temporary_file(tmp_path: Path) -> None:
    """As in a container with a read-only root. SQLite keeps the pages that a failing statement would need again."""
    files = WithoutTemporaryFolder("without-temporary-folder", "unix")
    connection = connect(tmp_path / "c.db", "without-temporary-folder")
    connection.execute("CREATE TABLE numbers (number INTEGER UNIQUE, text TEXT)")
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
        " INSERT INTO numbers SELECT i, hex(zeroblob(500)) FROM n"
    )
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE numbers SET number = number + 10000")
    connection.execute("COMMIT")
    connection.close()
    files.unregister()


def test_a_file_of_version_2_has_50_slots_and_keeps_its_log(tmp_path: Path) -> None:
    old = apsw.Connection(str(tmp_path / "c.db"))
    old.pragma("auto_vacuum", sqlite_schema.INCREMENTAL)
    old.pragma("journal_mode", "wal")
    old.execute(sqlite_schema.GROUPS)
    old.execute(sqlite_schema.LOG)
    old.pragma("user_version", 2)
    old.execute("INSERT INTO slots VALUES (49, 3), (50, 7)")
    for slot, number in ((49, 1), (50, 2)):
        old.execute("INSERT INTO batches VALUES (?, 1, ?, ?)", (slot, *batches.encode([record(number)])))
    old.close()

    async def body() -> None:
        with pytest.raises(StoreError, match="has 50 slots, not 60"):
            open_store(tmp_path / "c.db", slots=60)
        store = open_store(tmp_path / "c.db")
        assert store.slots == 50
        assert (await store.claim(49)).epoch == 4
        assert numbers(await store.load(49)) == [1]
        assert (await store.claim(LOG_SLOT)).epoch == 8
        assert numbers(await store.load(LOG_SLOT)) == [2]
        assert numbers(await store.load(50)) == []
        await store.close()

    asyncio.run(body())


def test_the_log_is_kept_apart_from_the_slots_however_many_there_are(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "c.db", slots=200)
        for slot in (LOG_SLOT, 0, 50, 199):
            epoch, _ = await store.claim(slot)
            await store.append(slot, epoch, [record(slot)])
        assert [numbers(await store.load(slot)) for slot in (LOG_SLOT, 0, 50, 199)] == [
            [LOG_SLOT],
            [0],
            [50],
            [199],
        ]
        await store.close()

    asyncio.run(body())
