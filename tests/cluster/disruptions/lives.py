"""
Applications of pods by the files that they write to the disks of their nodes: who has which partitions, and who has done what.

A life is one process of an application; a container that restarts begins another one in the same pod.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.sidecar.delivery.rounds.gaps import Notice
from tests.support.sidecar import Event, flat

ASSIGNED, RELEASED = "assigned", ("revoking", "lost", "ended", "closing")
# Events after which it has nothing, without a partition in them.
EMPTIED = ("ended", "closing", "detached")


class Life:
    """One process of an application. `ended_ms` is set by what was done to it; from then on it has nothing."""

    def __init__(self, path: Path, node: str) -> None:
        pod, _, started_ms = path.name.rpartition(".")
        self.name = path.name
        self.pod = pod
        self.node = node
        self.started_ms = int(started_ms)
        self.ended_ms: int | None = None
        # When its sidecar was killed: it has nothing before it is told so anew.
        self.detached_ms: list[int] = []
        self.events: list[Event] = []
        self.partitions: set[int] = set()
        self._path = path
        self._read_to = 0

    def read(self) -> None:
        """Take in what has been written since."""
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            # One that was killed may not have come to the end of its line.
            complete, _, _ = file.read().rpartition(b"\n")
        if complete:
            self._read_to += len(complete) + 1
            for line in complete.splitlines():
                event: Event = json.loads(line)
                self.events.append(event)
                self._handle(event)

    def _handle(self, event: Event) -> None:
        numbers = {number for _, number in flat(event.get("partitions", {}))}
        if event["event"] == ASSIGNED:
            self.partitions |= numbers
        elif event["event"] in EMPTIED:
            self.partitions.clear()
        elif event["event"] in RELEASED:
            self.partitions -= numbers

    @property
    def has_ended(self) -> bool:
        """Return whether it owns nothing any more, by its own words or by what was done to it."""
        return self.ended_ms is not None or any(each["event"] == "ended" for each in self.events[-1:])

    def end(self, at_ms: int) -> None:
        """Note that it was killed, or cut off: whatever it does later, others may have its partitions."""
        if not self.has_ended:
            self.ended_ms = at_ms
            self.partitions.clear()

    def detach(self, at_ms: int) -> None:
        """Note that its sidecar was killed: its partitions are assigned to it anew, or to others."""
        self.read()
        self.detached_ms.append(at_ms)
        self.partitions.clear()

    def notices(self, everything: frozenset[int]) -> Sequence[Notice]:
        """Return its partitions over time, for the times without an owner; events after its end do not count."""
        found: list[Notice] = [(at_ms, "ended", everything) for at_ms in self.detached_ms]
        for event in self.events:
            if self.ended_ms is not None and event["monotonic_ms"] > self.ended_ms:
                break
            numbers = frozenset(number for _, number in flat(event.get("partitions", {})))
            what = event["event"]
            if what in EMPTIED:
                found.append((event["monotonic_ms"], "ended", everything))
            elif what == ASSIGNED or what in RELEASED:
                found.append((event["monotonic_ms"], what, numbers))
        if self.ended_ms is not None:
            found.append((self.ended_ms, "ended", everything))
        return found


class Lives:
    """All processes of one workload's applications, from folders by the name of their node."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._by_path: dict[Path, Life] = {}

    def read(self) -> Sequence[Life]:
        """Return all lives, as far as they have written; the oldest first."""
        for node, folder in self._folders.items():
            for path in folder.iterdir():
                if path not in self._by_path:
                    self._by_path[path] = Life(path, node)
        for life in self._by_path.values():
            life.read()
        return sorted(self._by_path.values(), key=lambda life: life.started_ms)

    def running(self) -> Sequence[Life]:
        """Return those that have not ended."""
        return [life for life in self.read() if not life.has_ended]

    def of_pod(self, pod: str) -> Iterator[Life]:
        """Yield the running ones of a pod."""
        return (life for life in self.running() if life.pod == pod)
