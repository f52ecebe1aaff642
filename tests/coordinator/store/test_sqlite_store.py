"""The embedded store: one process has the file, and only a file that is a database is believed."""

import asyncio
from pathlib import Path

import pytest

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.sqlite import open_store


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
