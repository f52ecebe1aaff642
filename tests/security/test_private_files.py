"""Files of Rota are readable by its user alone, whatever the umask: files 0600, folders 0700."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_IMODE

from rota_coordinator.store.sqlite import open_store
from rota_operator.local.home import make_private
from rota_sidecar.membership.state_file import Owner, StateFile


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the folder and the files below it that other users may access, with their modes."""
    modes = {path: path.lstat().st_mode for path in (folder, *folder.rglob("*"))}
    return {str(path.relative_to(folder)): oct(S_IMODE(mode)) for path, mode in modes.items() if mode & 0o077}


def served(path: Path) -> list[str]:
    """The files of a store while it is open and written."""

    async def body() -> list[str]:
        store = open_store(path)
        await store.claim(0)
        found = sorted(each.name for each in path.parent.iterdir())
        assert open_to_others(path.parent) == {}
        await store.close()
        return found

    return asyncio.run(body())


def test_the_coordinator_s_files_are_private(tmp_path: Path) -> None:
    with umask(0):
        names = served(tmp_path / "made" / "groups.db")
    assert {"groups.db", "groups.db-wal"} <= set(names)


def test_the_coordinator_mends_files_that_others_could_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with umask(0):
        served(tmp_path / "groups.db")
        for name in ("groups.db", "groups.db-wal", "groups.db-shm"):
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o666)
        served(tmp_path / "groups.db")


def test_the_sidecar_s_state_is_private(tmp_path: Path) -> None:
    with umask(0):
        state = StateFile(tmp_path / "state", Owner("billing", ""))
        state.close()
    assert open_to_others(tmp_path / "state") == {}
    assert list((tmp_path / "state").iterdir()) != []


def test_a_home_of_before_is_mended(tmp_path: Path) -> None:
    home = tmp_path / ".rota"
    with umask(0):
        for name in (
            "logs/orders-0.app.log",
            "settings/shop.orders.json",
            "state/orders-0/state.json",
            "lock",
            "coordinator.sqlite",
        ):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).touch()
    assert open_to_others(home) != {}
    warnings: list[str] = []
    make_private(home, warnings.append)
    assert warnings == []
    assert open_to_others(home) == {}


def test_of_a_home_with_other_files_only_its_own_are_mended_and_that_is_said(tmp_path: Path) -> None:
    """A project folder, say, or /tmp."""
    home = tmp_path / "project"
    with umask(0):
        (home / "logs").mkdir(parents=True)
        (home / "main.py").touch()
    warnings: list[str] = []
    make_private(home, warnings.append)
    assert warnings == [
        f"warning: {home} contains files that are not Rota's and is accessible to other users (mode 777); use a separate folder for --home"
    ]
    assert open_to_others(home) == {".": "0o777", "main.py": "0o666"}


def test_a_link_in_a_home_is_not_followed(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / ".rota", tmp_path / "elsewhere"
    (home / "logs").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "file").touch(mode=0o644)
    (elsewhere / "file").chmod(0o644)
    (home / "logs" / "link").symlink_to(elsewhere / "file")
    (home / "state").symlink_to(elsewhere)
    make_private(home, lambda _: None)
    assert S_IMODE((elsewhere / "file").stat().st_mode) == 0o644
