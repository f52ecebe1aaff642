"""
A disk that is really full, for tests: a small file system in memory, which is visible only to processes started inside.

    with small_disk(folder) as disk:
        disk.fill()
        Process.start("writer", [*disk.inside, "python", "-m", "writer", str(disk.mount)], log=log)
        disk.clear()

It needs no privileges: in a user namespace every user may mount one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Process

BYTES = 64 << 10
# The mount itself, what is to be tested, and what fills it up.
FILES = 12
BLOCK = b"\0" * 4096
WITHIN_S = 60
HOLD = f'mount -t tmpfs -o size={BYTES},nr_inodes={FILES} tmpfs "$1"; echo mounted; exec sleep infinity'


class SmallDisk:
    """While its holder lives."""

    def __init__(self, mount: Path, holder: Process) -> None:
        # Where it lies for those inside.
        self.mount = mount
        # The same for everybody else.
        self.seen = Path(f"/proc/{holder.pid}/root{mount}")
        # Goes before the command of who is to be inside; who is somebody else there is to end with us, too.
        enter = ("nsenter", "--user", "--mount", "--preserve-credentials", f"--target={holder.pid}", "--")
        self.inside = (*enter, "setpriv", "--pdeathsig", "KILL", "--")
        self._filling: list[Path] = []

    def fill(self) -> None:
        """Until no file can be made any more, and none can grow."""
        for number in range(self._left().f_ffree):
            file = self.seen / f"filling-{number}"
            file.touch(exist_ok=False)
            self._filling.append(file)
        with self._filling[0].open("ab") as filling:
            filling.write(bytes(self._left().f_bfree * self._left().f_bsize))
        assert (self._left().f_ffree, self._left().f_bfree) == (0, 0)

    def clear(self) -> None:
        """Make room again."""
        for file in self._filling:
            file.unlink()
        self._filling.clear()

    def _left(self) -> os.statvfs_result:
        return os.statvfs(self.seen)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """An empty one."""
    mount = folder / "disk"
    mount.mkdir()
    apart = ["unshare", "--user", "--map-root-user", "--mount", "--"]
    log = folder / "disk.log"
    holder = Process.start("disk", [*apart, "sh", "-ec", HOLD, "sh", mount], log=log)
    try:
        holder.wait_until(lambda: "mounted" in log.read_text(), within_s=WITHIN_S)
        yield SmallDisk(mount, holder)
    finally:
        holder.kill()
