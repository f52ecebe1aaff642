"""
The file of a fenced sidecar: which instance another process has taken from it, so that no later process takes it back.

`lifecycle.member` writes it when the coordinator answers FENCED_INSTANCE_ID, reads it at the start, and removes it when Fleet gives
the sidecar an instance. It lies beside the state file, and ends with the pod.
"""

import json
import os
from pathlib import Path

from rota_service.private_files import FILE_MODE, make_folder
from rota_sidecar.config.parsing import is_name
from rota_sidecar.membership.state_file import StateFileError

FILE = "fenced.json"
BYTES_MAX = 4096


class FencedFile:
    """The file in one state folder. A content that is not one of this group counts as none."""

    def __init__(self, folder: Path, group_id: str) -> None:
        self._folder = folder
        self._group_id = group_id

    def read(self) -> str:
        """Return the instance that was lost; empty: none."""
        try:
            with (self._folder / FILE).open("rb") as file:
                held = json.loads(file.read(BYTES_MAX))
        except (OSError, ValueError, RecursionError):
            return ""
        if not isinstance(held, dict) or held.get("group_id") != self._group_id:
            return ""
        name = held.get("instance_id")
        return name if isinstance(name, str) and is_name(name) else ""

    def write(self, instance_id: str) -> None:
        """Write atomically, with fsync. Raises StateFileError."""
        fresh = self._folder / f"{FILE}.new"
        try:
            make_folder(self._folder)
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(file, "w") as writer:
                json.dump({"group_id": self._group_id, "instance_id": instance_id}, writer)
                writer.flush()
                os.fsync(writer.fileno())
            fresh.replace(self._folder / FILE)
        except OSError as error:
            raise StateFileError(
                f"{self._folder / FILE} cannot be written ({error.strerror}): another process has the instance {instance_id}, "
                "and the next process of this sidecar will take it back; end one of them"
            ) from None

    def remove(self) -> None:
        """Delete the file. Raises StateFileError."""
        try:
            (self._folder / FILE).unlink(missing_ok=True)
        except OSError as error:
            raise StateFileError(f"{self._folder / FILE} cannot be removed ({error.strerror})") from None
