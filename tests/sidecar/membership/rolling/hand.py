"""
One sidecar as a process, and beside it an application as a careful one would be: it works on what it owns, commits as
it goes, and lets go only when all that it has finished is committed.
"""

import os
import random
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from tests.sidecar.membership.rolling.history import Commit, Read, Start
from tests.sidecar.membership.rolling.tenures import Did, Hit, Life
from tests.support.processes import steady_ms
from tests.support.sidecar import Event, Partition, Sidecar, flat

# Of the driver's turns; in the others it only works.
TURNS_TO_A_COMMIT = 5
STEP_MAX = 3


@dataclass
class Notes:
    """Record of all members' work, in the order in which it happened."""

    chance: random.Random
    commits: list[Commit] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    # How far work on a partition has come, and who did it last.
    reached: dict[Partition, tuple[int, tuple[str, int]]] = field(default_factory=dict)
    order: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(frozen=True)
class Revocation:
    """Revocation that the application has to answer."""

    revocation: int
    partitions: frozenset[Partition]


class Hand:
    """A process and its application; what it does, it does in `turn`."""

    def __init__(self, sidecar: Sidecar, seat: int, member: str, notes: Notes) -> None:
        self.sidecar = sidecar
        self.seat = seat
        self.member = member
        self.hits: list[Hit] = []
        self.state = ""
        self.generation = -1
        # What it owns, in which tenure; and where it is, once it has read where to begin.
        self.tenures: dict[Partition, int] = {}
        self.positions: dict[Partition, int] = {}
        self.is_frozen = False
        self.is_leaving = False
        self._notes = notes
        self._turns = count(1)
        self._handled = 0
        self._committed: dict[Partition, int] = {}
        self._revoking: Revocation | None = None
        self._let_go_of = -1
        # Under way: commits by their ids, and what of is to be read.
        self._commits: dict[str, Commit] = {}
        self._reads: dict[str, int] = {}
        self._own_commit = ""
        self._first_read = ""

    @property
    def is_settled(self) -> bool:
        """Nothing is under way, as far as it can tell, and it works on all that it has."""
        is_at_work = self.positions.keys() == self.tenures.keys() and not self.is_frozen
        return self.state == "Stable" and self._revoking is None and is_at_work and not self.has_late_commits

    @property
    def has_late_commits(self) -> bool:
        """Of those that are to be refused, whether some have not been answered."""
        return any(commit.is_late for commit in self._commits.values())

    def life(self) -> Life:
        """All that it said, and that was done to it."""
        return Life(self.sidecar.name, self.member, list(self.sidecar.events), list(self.hits))

    def unanswered(self) -> Iterable[Commit]:
        """Commits of which nothing was heard."""
        return self._commits.values()

    # What is done to it

    def terminate(self) -> None:
        """SIGTERM; it ends once its application has let go."""
        self.is_leaving = True
        self._hit(Did.TERM)
        self.sidecar.signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.sidecar.kill()
        self._hit(Did.KILL)

    def freeze(self) -> None:
        """SIGSTOP; its application stands still too."""
        self.is_frozen = True
        self.sidecar.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.sidecar.pid, os.WSTOPPED)
        self._hit(Did.STOP)

    def wake(self) -> None:
        """SIGCONT. The application does no more work before it hears what has become of what it had."""
        self._hit(Did.CONT)
        self.sidecar.signal(signal.SIGCONT)

    def commit_late(self, tenures: Mapping[Partition, int], positions: Mapping[Partition, int]) -> None:
        """Ask to commit a little less than that, for tenures that are over."""
        offsets = {
            partition: max(0, positions[partition] - 1) for partition in tenures if partition in positions
        }
        if offsets:
            late = {partition: tenures[partition] for partition in offsets}
            self._commit(offsets, tenures, late)

    def read(self, partitions: Iterable[Partition]) -> str:
        """Ask what is committed."""
        order = next(self._notes.order)
        asked = f"read-{order}"
        self._reads[asked] = order
        parts = [{"topic": topic, "partition": number} for topic, number in sorted(partitions)]
        self.sidecar.send("fetch", id=asked, partitions=parts)
        return asked

    @property
    def reads_under_way(self) -> bool:
        return bool(self._reads)

    def _hit(self, did: Did) -> None:
        self.hits.append(Hit(did, steady_ms()))

    # What it does

    def turn(self) -> None:
        """Hear what the sidecar says, then work."""
        events = self.sidecar.events
        while self._handled < len(events):
            event = events[self._handled]
            self._handled += 1
            self._handle(event)
        if self.sidecar.is_running and not self.is_frozen:
            self._work()
            self._send()

    def _work(self) -> None:
        going = self._revoking.partitions if self._revoking else frozenset()
        for partition in sorted(self.positions.keys() - going):
            self.positions[partition] += self._notes.chance.randint(1, STEP_MAX)
            doer = self.sidecar.name, self.tenures[partition]
            self._notes.reached[partition] = self.positions[partition], doer

    def _send(self) -> None:
        unread = self.tenures.keys() - self.positions.keys()
        if unread and not self._first_read and not self._revoking and not self.is_leaving:
            self._first_read = self.read(unread)
        if self._own_commit in self._commits:
            return
        if self._revoking is not None:
            self._let_go(self._revoking)
        elif not self.is_leaving and next(self._turns) % TURNS_TO_A_COMMIT == 0:
            self._commit_own(self.positions.keys())

    def _let_go(self, revoking: Revocation) -> None:
        unfinished = {
            partition
            for partition in revoking.partitions & self.positions.keys()
            if self._committed.get(partition) != self.positions[partition]
        }
        if unfinished:
            self._commit_own(unfinished)
        elif revoking.revocation != self._let_go_of:
            self._let_go_of = revoking.revocation
            self.sidecar.send("revoked", revocation=revoking.revocation)

    def _commit_own(self, partitions: Iterable[Partition]) -> None:
        offsets = {partition: self.positions[partition] for partition in partitions}
        if offsets:
            self._own_commit = self._commit(offsets, self.tenures, {})

    def _commit(
        self,
        offsets: Mapping[Partition, int],
        tenures: Mapping[Partition, int],
        late: Mapping[Partition, int],
    ) -> str:
        order = next(self._notes.order)
        asked = f"commit-{order}"
        self._commits[asked] = Commit(self.sidecar.name, offsets, order, tenures=late)
        parts = [
            {"topic": topic, "partition": number, "offset": offset, "tenure": tenures[topic, number]}
            for (topic, number), offset in offsets.items()
        ]
        self.sidecar.send("commit", id=asked, offsets=parts)
        return asked

    # What it hears

    def _handle(self, event: Event) -> None:
        match event["event"]:
            case "state":
                self.state = event["state"]
            case "joined":
                self.generation = event["generation"]
            case "assigned" | "revoking" | "revoked" | "lost":
                self._handle_change(event, frozenset(flat(event["partitions"])))
            case "committed":
                self._handle_commit(event)
            case "fetched":
                self._handle_read(event)
            case "refused":
                raise AssertionError(event["sentence"])

    def _handle_change(self, event: Event, partitions: frozenset[Partition]) -> None:
        match event["event"]:
            case "assigned":
                tenure: int = event["tenure"]
                self.tenures.update(dict.fromkeys(partitions, tenure))
            case "revoking":
                self._revoking = Revocation(event["revocation"], partitions)
            case "revoked":
                self._revoking = None
                tenures, positions = self._forget(partitions)
                if self.sidecar.is_running and not self.is_leaving:
                    self.commit_late(tenures, positions)
            case _:
                self._forget(partitions)
                self._revoking = None
                self.is_frozen = False

    def _forget(
        self, partitions: Iterable[Partition]
    ) -> tuple[Mapping[Partition, int], Mapping[Partition, int]]:
        """The tenures that are over, and how far it had come in them."""
        tenures = {partition: self.tenures.pop(partition) for partition in partitions}
        positions = {part: self.positions.pop(part) for part in partitions if part in self.positions}
        for partition in partitions:
            self._committed.pop(partition, None)
        return tenures, positions

    def _handle_commit(self, event: Event) -> None:
        refused: dict[Partition, str] = {
            (each["topic"], each["partition"]): each["error"] for each in event["errors"]
        }
        asked = self._commits.pop(event["id"])
        commit = replace(asked, answered=next(self._notes.order), refused=refused)
        self._notes.commits.append(commit)
        if event["id"] == self._own_commit:
            self._committed.update(
                (part, offset) for part, offset in commit.taken.items() if part in self.tenures
            )

    def _handle_read(self, event: Event) -> None:
        order = self._reads.pop(event["id"])
        is_first = event["id"] == self._first_read
        if is_first:
            self._first_read = ""
        if event["error"] != "NONE":
            return
        found: dict[Partition, int] = {
            (each["topic"], each["partition"]): each["offset"] for each in event["offsets"]
        }
        committed = {partition: offset for partition, offset in found.items() if offset >= 0}
        self._notes.reads.append(Read(self.sidecar.name, committed, order))
        if is_first:
            for partition in found.keys() & self.tenures.keys() - self.positions.keys():
                self._begin(partition, max(0, found[partition]))

    def _begin(self, partition: Partition, offset: int) -> None:
        reached, doer = self._notes.reached.get(partition, (0, None))
        name, tenure = self.sidecar.name, self.tenures[partition]
        self._notes.starts.append(Start(name, tenure, partition, offset, reached, doer))
        self.positions[partition] = self._committed[partition] = offset
