"""Processes that copy, as the tests of the copy job see them: by what they say, and how far their group has come."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from typing_extensions import override

from tests.log.copies import PARTITIONS
from tests.log.owners import Owner

TRANSACTIONAL = {"sidecar_flags": ["--commit-mode=transactional"]}

# The group's offsets, by partition.
Offsets = Mapping[int, int]
Settings = Mapping[str, object]
# What stops of a copier: its process; its sidecar with it; its main thread alone, and the others hear what happens.
Standing = Literal["process", "both", "thread"]


def command(
    servers: str, source: str, target: str, *, consumer: Settings, producer: Settings
) -> Sequence[str]:
    """Return the command line of one copier."""
    return [
        *(sys.executable, "-m", "tests.log.copy_worker"),
        *(f"--servers={servers}", f"--source={source}", f"--target={target}"),
        f"--consumer={json.dumps({**TRANSACTIONAL, **consumer})}",
        f"--producer={json.dumps(producer)}",
    ]


class Copier(Owner):
    """A copier, as the test sees it. `offsets` are those of its group."""

    def __init__(self, name: str, command: Sequence[str], log: Path, offsets: Callable[[], Offsets]) -> None:
        super().__init__(name, command, log)
        self.name = name
        self._offsets = offsets

    def wait_until_owns(self, count: int = PARTITIONS) -> None:
        self.wait_until(lambda: str(count) in self.events("assigned"))

    def wait_until_copied(self, position: int) -> None:
        """The group's offsets together are so far."""
        self.wait_until(lambda: sum(self._offsets().values()) >= position)

    def wait_until_done(self, ends: Offsets) -> None:
        """Everything is copied, by whom ever."""
        self.wait_until(lambda: self.is_done(ends))

    def is_done(self, ends: Offsets) -> bool:
        return self._offsets() == ends

    def tenures(self) -> Iterator[tuple[str, int, list[int]]]:
        """Return the tenures of a copier: its name, the generation, the partitions."""
        for event in self.events("owns"):
            generation, *partitions = map(int, event.split())
            yield self.name, generation, partitions

    def wait_until_it_stands(self, what: Standing) -> None:
        """In mid-transaction."""
        if what == "thread":
            self.wait_for("holding")
        else:
            self.wait_until_stopped()
        if what == "both":
            self.freeze()

    @override
    def go_on(self) -> None:
        super().go_on()
        if self.process.exit_code is None:
            os.kill(self.process.pid, signal.SIGUSR1)
