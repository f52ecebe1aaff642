"""Detection of changed files without reading them."""

from pathlib import Path
from typing import NamedTuple

from rota_coordinator.security.errors import SecurityError


class Version(NamedTuple):
    """The attributes of a file that change when it is written or replaced."""

    device: int
    inode: int
    size: int
    changed_ns: int
    mode: int


def version_of(path: Path) -> Version:
    """The version of the file that has this name now."""
    try:
        found = path.stat()
    except OSError as error:
        raise SecurityError(
            f"{path} cannot be read ({error.strerror}); give the path of an existing file"
        ) from None
    return Version(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns, found.st_mode)
