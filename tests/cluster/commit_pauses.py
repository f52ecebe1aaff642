"""Pauses in which nothing is committed in a group, measured in the coordinator's store, from outside of the cluster."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.cluster.released import Release
from tests.support.cluster import WITHIN_S
from tests.support.processes import wait_for

# A query each time; members commit once a second.
POLL_S = 0.2
# So many commits show that the group goes on.
COMMITS = 3

# Returns the number of batches that were ever written to the group's slot; None: the store does not answer.
ReadBatches = Callable[[], int | None]


class CommitPauses:
    """Longest time between two writes to a group's slot. Invariant: only the thread of `watching` writes the fields."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.commits = 0
        self._last: int | None = None
        self._at_s = time.monotonic()  # noqa: TID251  a measurement

    def add(self, batches: int | None) -> None:
        """Add what the store says now."""
        if batches is None or batches == self._last:
            return
        now_s = time.monotonic()  # noqa: TID251  a measurement
        if self._last is not None:
            self.longest_s = max(self.longest_s, now_s - self._at_s)
            self.commits += 1
        self._last, self._at_s = batches, now_s

    def wait_commits(self) -> None:
        """Wait until the group commits, in case of a pause after it."""
        enough = self.commits + COMMITS
        wait_for("the group commits", lambda: self.commits >= enough, within_s=WITHIN_S, poll_s=POLL_S)


@contextmanager
def watching(read: ReadBatches) -> Iterator[CommitPauses]:
    """Measure while open; the group has committed before that, and does so after it."""
    pauses, ended = CommitPauses(), threading.Event()

    def poll() -> None:
        while not ended.wait(POLL_S):
            pauses.add(read())

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        pauses.wait_commits()
        yield pauses
        pauses.wait_commits()
    finally:
        ended.set()
        thread.join()


@contextmanager
def unchanged(release: Release, read: ReadBatches, what: str, report: list[str]) -> Iterator[None]:
    """Measure the pause around a loss; afterwards the group is Ready in the same generation, with the same pods."""
    group = release.group()
    with watching(read) as pauses:
        yield
    release.wait_shared()
    release.wait_unchanged(group)
    report.append(f"{what}: nothing committed for {pauses.longest_s:.1f} s")
