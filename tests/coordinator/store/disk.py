"""
A disk below SQLite that fails when it is told to, and that remembers what would be left if the power went.

As Linux does: a flush that fails loses what it could not write, and takes it for written from then on.
"""

import enum
import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import apsw
from typing_extensions import override

PAGE = 4_096
SHM = "-shm"


class Fault(enum.Enum):
    """Fault of the disk."""

    NONE = "none"
    FULL = "full"
    READ_ONLY = "read-only"
    FLUSH = "flush"
    HANGING = "hanging"


@dataclass(slots=True)
class Image:
    """One file as the disk has it, beside what the system has of it in memory."""

    durable: bytearray = field(default_factory=bytearray)
    # Pages that the next flush writes, and such that a flush failed to write.
    dirty: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)


class Disk(apsw.VFS):
    """SQLite's own way to files, with faults in it."""

    def __init__(self, name: str, seed: int = 0) -> None:
        super().__init__(name, "unix")
        self.name = name
        self._fault = Fault.NONE
        self._answers = threading.Event()
        self._answers.set()
        # How many of the flushes fail, besides.
        self.unwell = 0.0
        self.random = random.Random(seed)
        self._images: dict[Path, Image] = {}

    @property
    def fault(self) -> Fault:
        """The disk's fault, which can be set."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._fault = fault
        if fault is Fault.HANGING:
            self._answers.clear()
        else:
            self._answers.set()

    def wait_for_answer(self) -> None:
        """Return once the disk does not hang."""
        self._answers.wait()

    @override
    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "DiskFile":
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else str(name))
        return DiskFile(self, self._images.setdefault(path, Image()), path, name, flags)

    @override
    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._images.pop(Path(filename), None)
        super().xDelete(filename, syncdir)

    def cut_power(self, folder: Path) -> None:
        """Keep what a power failure leaves on the disk: all flushed writes, and any of the others."""
        folder.mkdir()
        for path, image in self._images.items():
            left = image.durable[:]
            anyhow = [page for page in sorted(image.dirty | image.lost) if self.random.random() < 0.5]
            put(left, path.read_bytes(), anyhow)
            (folder / path.name).write_bytes(left)


class DiskFile(apsw.VFSFile):
    """One open file."""

    def __init__(
        self, disk: Disk, image: Image, path: Path, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._image = image
        self._path = path

    @override
    def xWrite(self, data: bytes, offset: int) -> None:
        if self._disk.fault is Fault.FULL:
            raise apsw.FullError("no space left")
        if self._disk.fault is Fault.READ_ONLY:
            raise apsw.IOError("read-only file system")
        super().xWrite(data, offset)
        pages = range(offset // PAGE, (offset + len(data) - 1) // PAGE + 1)
        self._image.dirty.update(pages)
        self._image.lost.difference_update(pages)

    @override
    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        del self._image.durable[newsize:]

    @override
    def xSync(self, flags: int) -> None:
        self._disk.wait_for_answer()
        fault = self._disk.fault
        if fault in (Fault.FLUSH, Fault.READ_ONLY) or self._disk.random.random() < self._disk.unwell:
            self._image.lost |= self._image.dirty
            self._image.dirty.clear()
            raise apsw.IOError("the disk does not answer")
        super().xSync(flags)
        put(self._image.durable, self._path.read_bytes(), self._image.dirty)
        self._image.dirty.clear()


def put(image: bytearray, content: bytes, pages: Iterable[int]) -> None:
    """Copy some pages of the content to the image."""
    for page in pages:
        written = content[page * PAGE : (page + 1) * PAGE]
        end = page * PAGE + len(written)
        image.extend(bytes(max(0, end - len(image))))
        image[page * PAGE : end] = written
