"""One coordinator writes a SQLite file, whatever name another one knows it by."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.sqlite import open_store


def same(path: Path) -> Path:
    return path


def through_a_symlink(path: Path) -> Path:
    link = path.with_name("link.sqlite")
    link.symlink_to(path)
    return link


def through_a_hard_link(path: Path) -> Path:
    link = path.with_name("hard.sqlite")
    link.hardlink_to(path)
    return link


def after_files_beside_it_were_removed(path: Path) -> Path:
    for beside in path.parent.glob("*.lock"):
        beside.unlink()
    return path


@pytest.mark.parametrize(
    "name", [same, through_a_symlink, through_a_hard_link, after_files_beside_it_were_removed]
)
def test_a_second_writer_is_refused_by_whatever_name(tmp_path: Path, name: Callable[[Path], Path]) -> None:
    async def body() -> None:
        path = tmp_path / "coordinator.sqlite"
        store = open_store(path)
        await store.claim(0)
        with pytest.raises(StoreError, match="is in use by another coordinator"):
            open_store(name(path))
        await store.close()
        again = open_store(path)
        await again.claim(0)
        await again.close()

    asyncio.run(body())


def test_a_symlink_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "coordinator.sqlite.lock").symlink_to(precious)

    async def body() -> None:
        await open_store(tmp_path / "coordinator.sqlite").close()

    asyncio.run(body())
    assert precious.read_text() == "kept"
