"""
Copies of the embedded store's file, made while a coordinator writes to it. Called by `__main__` for `--backup`.

A copy is marked as a backup in its header: `sqlite.open_store` rejects it until `--restored` has prepared and unmarked it.
"""

import os
from pathlib import Path

import apsw

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.sqlite_schema import connect_reader
from rota_service.private_files import FILE_MODE

# SQLite's application id of a backup: "rotb" in ASCII.
BACKUP_ID = 0x726F7462
SERVED_ID = 0
ALL_PAGES = -1


def back_up(path: Path, target: Path) -> int:
    """
    Copy the file as of one moment, groups and records alike, and return the copy's size in bytes.

    All pages are read in one transaction, which delays no writer; the WAL grows until it ends. The copy appears under its name
    once it is complete and on disk. Raises StoreError.
    """
    if target.exists():
        raise StoreError(f"{target} exists; choose another file with --backup, or delete that one")
    partial = target.with_name(target.name + ".partial")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE))
    except OSError as failed:
        raise StoreError(
            f"{target} cannot be created ({failed}); choose another file with --backup"
        ) from failed
    try:
        _copy(path, partial)
        partial.rename(target)
        return target.stat().st_size
    except (apsw.Error, OSError) as failed:
        raise StoreError(f"{path} cannot be copied to {target} ({failed})") from failed
    finally:
        partial.unlink(missing_ok=True)


def _copy(path: Path, partial: Path) -> None:
    source = connect_reader(path)
    try:
        copy = apsw.Connection(str(partial))
        try:
            with copy.backup("main", source, "main") as pages:
                pages.step(ALL_PAGES)
            copy.pragma("application_id", BACKUP_ID)
        finally:
            copy.close()
    finally:
        source.close()
