"""
PostgreSQL's programs, unpacked from Debian's package, and the user to run them as.

`prepare` is what `make test` calls before the tests, and what every start of a server calls again.
"""

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import debian
from tests.support.unavailable import Unavailable

VERSION = 15
# PostgreSQL refuses to run as root. In a user namespace root is somebody else, and yet its files stay its own:
# no folder has to change hands, and the home folder may stay closed to others.
NOT_ROOT = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the programs, and the prefix of their command lines."""

    folder: Path
    environment: dict[str, str]
    # Goes before the command.
    as_ordinary_user: tuple[str, ...]

    def path(self, name: str) -> Path:
        return self.folder / name


def prepare() -> Programs:
    """The programs; fetched on the first call."""
    tree = debian.unpack("postgresql", f"postgresql-{VERSION}")
    return Programs(
        tree.root / f"usr/lib/postgresql/{VERSION}/bin",
        # The machine's language and time zone would end up in the server's messages and settings.
        {**tree.environment(), "LC_ALL": "C", "TZ": "UTC"},
        _as_ordinary_user(),
    )


@functools.cache
def _as_ordinary_user() -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    tried = subprocess.run([*NOT_ROOT, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise Unavailable(
            f"PostgreSQL refuses to run as root, and user namespaces are off here ({tried.stderr.strip()}): "
            "run the tests as an ordinary user"
        )
    return NOT_ROOT
