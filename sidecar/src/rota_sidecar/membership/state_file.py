"""
The state file: the saved membership, with which a sidecar that crashed resumes as the same member.

The wiring opens it before the member starts, and `driver` writes it for the actions SaveMembership and DeleteMembership. A lock
gives the folder to one sidecar at a time; the kernel releases it when the process ends.
"""

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from rota_service.private_files import FILE_MODE, make_folder
from rota_sidecar.config.parsing import is_name
from rota_sidecar.core.member.identity import NO_GENERATION, JoinMetadata, SavedMembership

FILE = "member.json"
LOCK = "member.lock"
VERSION = 1
# Some ten thousand topics and their partitions.
BYTES_MAX = 8 << 20
INT32_MAX = 2**31 - 1
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

Kind = TypeVar("Kind")


class StateFileError(Exception):
    """The folder or the file cannot be used; the message says why and what to do."""


class NoRoom(StateFileError):
    """The folder cannot be created now, because its disk is full."""


class _Unusable(Exception):
    """The content of the file is invalid."""


class Owner(NamedTuple):
    """Group and instance id that the file must have; other memberships are not resumed."""

    group_id: str
    instance_id: str | None


class StateFile:
    """The state file of one sidecar. Invariant: it holds the lock on its folder unless `_lock` is None. Raises StateFileError."""

    def __init__(self, folder: Path, owner: Owner, *, adopts_instance: bool = False) -> None:
        """With `adopts_instance` the membership of any instance id of the group is read, and its instance id is the owner's then."""
        self._folder = folder
        self._owner = owner
        self._adopts_instance = adopts_instance
        # None while the disk is too full for the folder. The sidecar starts all the same; `write` tries again and raises.
        self._lock: int | None = None
        with suppress(NoRoom):
            self._lock = _locked(folder)

    @property
    def instance_id(self) -> str | None:
        """Instance id of the owner."""
        return self._owner.instance_id

    def read(self) -> tuple[SavedMembership | None, str]:
        """Return the saved membership, if any, and a problem if the file was invalid and was moved aside."""
        if self._lock is None:
            return None, ""
        try:
            data = self._content()
            if data is None:
                return None, ""
            if self._adopts_instance:
                self._owner = _with_saved_instance(data, self._owner)
            return _parsed(data, self._owner), ""
        except (_Unusable, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return None, self._put_aside(reason or "unreadable")

    def write(self, saved: SavedMembership) -> None:
        """Write atomically, with fsync of file and folder. Raises StateFileError."""
        if self._lock is None:
            self._lock = _locked(self._folder)
        fresh = self._folder / f"{FILE}.new"
        try:
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(file, "wb") as writer:
                writer.write(_written(saved, self._owner))
                writer.flush()
                os.fsync(writer.fileno())
            fresh.replace(self._folder / FILE)
            self._sync_folder()
        except OSError as error:
            # A partly written file would occupy space.
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise StateFileError(_unwritable(self._folder, error)) from None

    def remove(self) -> None:
        """Delete the file. Raises StateFileError."""
        if self._lock is None:
            return
        try:
            (self._folder / FILE).unlink(missing_ok=True)
            self._sync_folder()
        except OSError as error:
            raise StateFileError(_unwritable(self._folder, error)) from None

    def close(self) -> None:
        """Release the lock on the folder."""
        if self._lock is not None:
            os.close(self._lock)

    def _content(self) -> bytes | None:
        try:
            with (self._folder / FILE).open("rb") as file:
                data = file.read(BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        if len(data) > BYTES_MAX:
            raise _Unusable(f"it is larger than {BYTES_MAX} bytes")
        return data

    def _put_aside(self, reason: str) -> str:
        file, aside = self._folder / FILE, self._folder / f"{FILE}.aside"
        message = f"{file} is not a valid state file of this member ({reason}); it joins as a new member"
        try:
            file.replace(aside)
        except OSError as error:
            return f"{message}; the file cannot be moved ({error.strerror}): remove it"
        return f"{message}; the old content is in {aside.name}"

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _locked(folder: Path) -> int:
    """Create the folder if necessary and lock it; return the lock. Raises StateFileError."""
    try:
        make_folder(folder)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        unusable = f"--state-folder {folder} cannot be used ({error.strerror})"
        if error.errno in FULL:
            raise NoRoom(
                f"{unusable}: free disk space; until then a restarted sidecar joins only after its session has timed out"
            ) from None
        raise StateFileError(f"{unusable}: choose a folder that this user can write") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StateFileError(
            f"--state-folder {folder} is in use by another sidecar: each sidecar needs its own folder"
        ) from None
    return lock


def _unwritable(folder: Path, error: OSError) -> str:
    return (
        f"{folder / FILE} cannot be written ({error.strerror}): free disk space and check the permissions; until then a "
        "restarted sidecar joins only after its session has timed out"
    )


def _written(saved: SavedMembership, owner: Owner) -> bytes:
    return json.dumps(
        {
            "version": VERSION,
            "group_id": owner.group_id,
            "instance_id": owner.instance_id,
            "member_id": saved.member_id,
            "generation": saved.generation,
            "strategy": saved.strategy,
            "leads": saved.leads,
            "topics": saved.join_metadata.topics,
            "strategies": saved.join_metadata.strategies,
            "of_group": sorted(saved.group_topics),
        }
    ).encode()


def _with_saved_instance(data: bytes, owner: Owner) -> Owner:
    """Return the owner with the instance id of the file."""
    instance_id = _fields(data).get("instance_id")
    if instance_id is None:
        return owner
    if not (isinstance(instance_id, str) and is_name(instance_id)):
        raise _Unusable("its instance_id is not a valid name")
    return owner._replace(instance_id=instance_id)


def _fields(data: bytes) -> Mapping[str, object]:
    try:
        held = json.loads(data)
    except (ValueError, RecursionError):
        raise _Unusable("it is not JSON") from None
    if not isinstance(held, dict) or held.get("version") != VERSION:
        raise _Unusable(f"its version is not {VERSION}")
    return held


def _parsed(data: bytes, owner: Owner) -> SavedMembership:
    held = _fields(data)
    if held.get("group_id") != owner.group_id or held.get("instance_id") != owner.instance_id:
        raise _Unusable("it belongs to another group or instance id")
    if not _of(held, "member_id", str):
        raise _Unusable("its member_id is empty")
    return SavedMembership(
        _string(held, "member_id"),
        _number(held, "generation", NO_GENERATION),
        _string(held, "strategy"),
        _of(held, "leads", bool),
        JoinMetadata(_strings(held, "topics"), _strings(held, "strategies")),
        frozenset(_strings(held, "of_group")),
    )


def _of(held: Mapping[str, object], key: str, kind: type[Kind]) -> Kind:
    found = held.get(key)
    # True is an int too, and never a generation.
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise _Unusable(f"its {key} has the wrong type")
    return found


def _string(held: Mapping[str, object], key: str) -> str:
    """Return a string that can be encoded in UTF-8: JSON allows unpaired surrogates."""
    found = _of(held, key, str)
    if not found.isascii() and found != found.encode(errors="replace").decode():
        raise _Unusable(f"its {key} is not valid text")
    return found


def _number(held: Mapping[str, object], key: str, lowest: int) -> int:
    found = _of(held, key, int)
    if not lowest <= found <= INT32_MAX:
        raise _Unusable(f"its {key} is out of range")
    return found


def _strings(held: Mapping[str, object], key: str) -> tuple[str, ...]:
    return tuple(_string({key: each}, key) for each in _of(held, key, list))
