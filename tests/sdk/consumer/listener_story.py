"""Consumers of one group, each a process with its sidecar, through several rebalances: the story, for both engines."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import Member
from tests.conformance.runs import RealDriver
from tests.sdk.consumer.listener_rules import Event, Life
from tests.support.processes import Process, steady_ms, wait_for
from tests.support.workdir import logs

# Reached only by what hangs.
WITHIN_S = 120
# Longer than the story: no member is expelled because the machine is busy. Those that are killed, or stand still, leave by request.
SESSION_MS = 1_800_000
HEARTBEAT_MS = 250
PARTITIONS = 6

Connect = Callable[[], RealDriver]


class Listening:
    """One consumer and its sidecar."""

    def __init__(self, folder: Path, name: str, flags: Sequence[str]) -> None:
        self.is_frozen = False
        self._is_to_run = True
        self._name = name
        self._killed_ms: int | None = None
        self._frozen_ms: int | None = None
        self._frozen_with: frozenset[int] = frozenset()
        self._out = logs(folder) / f"{name}.events"
        self._out.touch()
        self._seen: list[Event] = []
        self._read_to = 0
        command = [sys.executable, "-m", "tests.sdk.consumer.listener_worker", f"--out={self._out}"]
        self._process = Process.start(name, [*command, *flags], log=logs(folder) / f"{name}.log")

    @property
    def events(self) -> Sequence[Event]:
        """All that it told so far."""
        with self._out.open("rb") as file:
            file.seek(self._read_to)
            complete, _, _ = file.read().rpartition(b"\n")
        if complete:
            self._read_to += len(complete) + 1
            self._seen += map(json.loads, complete.splitlines())
        return self._seen

    @property
    def life(self) -> Life:
        """All that there is to know of it."""
        return Life(self._name, self.events, self._killed_ms, self._frozen_ms, self._frozen_with)

    @property
    def held(self) -> frozenset[int]:
        """Partitions that its listener was notified of."""
        held: set[int] = set()
        for event in self.events:
            if event["event"] == "assigned":
                held |= set(event["partitions"])
            elif event["event"] in ("revoked", "lost"):
                held -= set(event["partitions"])
        return frozenset(held)

    @property
    def member_id(self) -> str:
        """Id of its member in the newest of its generations."""
        return next(str(event["member"]) for event in reversed(self.events) if event["event"] == "assigned")

    @property
    def has_polled_all(self) -> bool:
        """Return True if records of each partition were read since its assignment."""
        waits: set[int] = set()
        for event in self.events:
            if event["event"] == "assigned":
                waits |= set(event["partitions"])
            elif event["event"] == "polled":
                waits.discard(event["partition"])
            elif event["event"] in ("revoked", "lost"):
                waits -= set(event["partitions"])
        return not waits

    @property
    def is_there(self) -> bool:
        """Return True if the member is in the group. Raises when its process has exited."""
        if self._is_to_run:
            self._process.check_running()
        return self._is_to_run and not self.is_frozen

    def terminate(self) -> None:
        """SIGTERM, once; returns when it has ended in good order."""
        self._process.check_running()
        self._is_to_run = False
        os.kill(self._process.pid, signal.SIGTERM)
        assert self._process.wait(within_s=WITHIN_S) == 0, self._process.tail()

    def kill(self) -> None:
        """SIGKILL, with its sidecar."""
        self._is_to_run = False
        self._killed_ms = steady_ms()
        self._process.signal_with_children(signal.SIGKILL)
        self._process.kill()

    def freeze(self) -> None:
        """SIGSTOP, with its sidecar; returns when it stands still."""
        self._process.signal_with_children(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        self._frozen_ms, self._frozen_with = steady_ms(), self.held
        self.is_frozen = True

    def wake(self) -> None:
        """SIGCONT."""
        self._process.signal_with_children(signal.SIGCONT)
        self.is_frozen = False

    def close(self) -> None:
        """End it whatever it does, if it runs."""
        if self._process.exit_code is None:
            self._process.kill()


class Group:
    """Its consumers, one after the other."""

    def __init__(self, folder: Path, servers: str, topic: str, strategy: str, connect: Connect) -> None:
        self.strategy = strategy
        self.members: list[Listening] = []
        self._name = f"{topic}-{strategy}"
        self._connect = connect
        self._folder = folder
        self._flags = [
            f"--servers={servers}",
            f"--topic={topic}",
            f"--group={self._name}",
            f"--strategy={strategy}",
            f"--session-ms={SESSION_MS}",
            f"--heartbeat-ms={HEARTBEAT_MS}",
        ]

    def begin(self) -> Listening:
        """One more."""
        name = f"{self.strategy}-{len(self.members) + 1}"
        self.members.append(Listening(self._folder, name, self._flags))
        return self.members[-1]

    def replace(self, member: Listening) -> None:
        """Kill it; another one comes at once."""
        member.kill()
        # Its sidecar may have been quick, and left by itself before it was killed.
        assert self._expel(member) in (pb.NONE, pb.UNKNOWN_MEMBER_ID)
        self.begin()

    def freeze(self, member: Listening) -> None:
        """Let it stand still until the group goes on without it."""
        member.freeze()
        assert self._expel(member) == pb.NONE

    def _expel(self, member: Listening) -> int:
        """Have it leave the group, as when its session has expired; return the error code."""

        async def leave() -> int:
            driver = self._connect()
            error = await Member(driver, self._name, member_id=member.member_id).leave()
            await driver.close()
            return error

        return asyncio.run(leave())

    @property
    def is_settled(self) -> bool:
        """Return True if the running members own all partitions, each some of them, and read them."""
        there = [member for member in self.members if member.is_there]
        shares = [member.held for member in there]
        return (
            all(shares)
            and sorted(number for share in shares for number in share) == list(range(PARTITIONS))
            and all(member.has_polled_all for member in there)
        )


def several_rebalances(
    folder: Path, servers: str, topic: str, strategies: Sequence[str], connect: Connect
) -> list[Group]:
    """
    A group for each strategy, all at the same time: members join, leave, are killed, and stand still.

    `connect` makes a client of the coordinator.
    """
    groups = [Group(folder, servers, topic, strategy, connect) for strategy in strategies]
    try:
        each(groups, lambda group: (group.begin(), group.begin()))
        each(groups, lambda group: group.begin())
        each(groups, lambda group: group.members[1].terminate())
        each(groups, lambda group: group.replace(group.members[2]))
        each(groups, lambda group: group.freeze(group.members[0]))
        each(groups, lambda group: group.members[0].wake())
        for group in groups:
            group.members[0].terminate()
            group.members[3].terminate()
        return groups
    finally:
        for group in groups:
            for member in group.members:
                member.close()


def each(groups: Sequence[Group], act: Callable[[Group], object]) -> None:
    """Do it in each of them, and wait until all are settled."""
    for group in groups:
        act(group)
    wait_for("all groups are settled", lambda: all(group.is_settled for group in groups), within_s=WITHIN_S)
