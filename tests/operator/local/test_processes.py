"""The processes of a workload come, go and come again as replicas are decided to."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from rota_operator.local.processes import Command, Processes, ReplicaEvent
from rota_operator.replicas.events import ProcessRole, ReplicaPolicy, ReplicaStopped, Restarting
from rota_operator.replicas.replica_set import ReplicaSet, Running

pytestmark = pytest.mark.process

WITHIN_S = 60
# It says what it is told, and who it is, and ends when it is asked to, a moment later if it is an application.
CODE = """
import os, signal, sys
def stop(*_):
    print("stopped", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print("started", os.environ["WHO"], os.getpid(), flush=True)
while True: signal.pause()
"""


class ProcessesUnderTest:
    """A folder with the logs of one workload."""

    def __init__(self, folder: Path, rules: ReplicaPolicy) -> None:
        self.folder = folder
        self.events: list[ReplicaEvent] = []
        self.news = asyncio.Event()
        self.processes = Processes(ReplicaSet(rules), self.command, self._on_event)

    def _on_event(self, event: ReplicaEvent) -> None:
        self.events.append(event)
        self.news.set()

    def command(self, replica: int, part: ProcessRole) -> Command:
        who = f"{part.value}-{replica}"
        argv = [sys.executable, "-c", CODE]
        # Nobody is there, and that is told.
        return Command(
            argv, {"WHO": who}, self.folder, self.folder / "logs" / f"{who}.log", 1, self.folder / "no.drain"
        )

    def lines(self, who: str) -> list[str]:
        """Return the complete lines of a log: the process may be writing the last one."""
        log = self.folder / "logs" / f"{who}.log"
        return log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []

    def pid(self, who: str) -> int:
        return int([line for line in self.lines(who) if line.startswith("started")][-1].split()[2])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Looked at every few milliseconds: it is another process that does it."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self.news.clear()
                await asyncio.wait([asyncio.ensure_future(self.news.wait())], timeout=0.01)

    async def until_up(self, count: int) -> None:
        names = [f"{part.value}-{number}" for number in range(count) for part in ProcessRole]
        await self.until(
            lambda: all(any(x.startswith("started") for x in self.lines(name)) for name in names)
        )
        lives = [life for parts in self.processes.replicas.replicas.values() for life in parts.values()]
        assert all(isinstance(life, Running) for life in lives)


def play(
    folder: Path,
    story: Callable[[ProcessesUnderTest], Coroutine[None, None, None]],
    rules: ReplicaPolicy | None = None,
) -> None:
    async def run() -> None:
        running = ProcessesUnderTest(folder, rules or ReplicaPolicy(backoff_ms=10))
        try:
            await story(running)
        finally:
            async with asyncio.timeout(WITHIN_S):
                await running.processes.stop()
        assert not running.processes.failed.done()

    asyncio.run(run())


def test_replicas_are_started_scaled_and_ended(tmp_path: Path) -> None:
    async def story(running: ProcessesUnderTest) -> None:
        running.processes.scale(3)
        await running.until_up(3)
        running.processes.scale(1)
        await running.until(lambda: {ReplicaStopped(1), ReplicaStopped(2)} <= set(running.events))
        assert running.lines("app-2")[-1] == running.lines("sidecar-2")[-1] == "stopped"
        await running.processes.stop()
        assert ReplicaStopped(0) in running.events

    play(tmp_path, story)


@pytest.mark.parametrize("part", ProcessRole)
def test_a_part_that_is_killed_comes_again_alone(tmp_path: Path, part: ProcessRole) -> None:
    async def story(running: ProcessesUnderTest) -> None:
        running.processes.scale(1)
        await running.until_up(1)
        who = f"{part.value}-0"
        other = next(f"{each.value}-0" for each in ProcessRole if each is not part)
        first = running.pid(who)
        os.kill(first, signal.SIGKILL)
        await running.until(lambda: running.pid(who) != first)
        (again,) = running.events
        assert isinstance(again, Restarting)
        assert (again.part, again.code) == (part, 128 + signal.SIGKILL)
        assert len(running.lines(other)) == 1

    play(tmp_path, story)


def test_a_command_that_cannot_be_run_is_reported_and_retried(tmp_path: Path) -> None:
    async def story(running: ProcessesUnderTest) -> None:
        running.command = lambda replica, part: Command(  # type: ignore[method-assign]
            ["/no/such/program"], {}, tmp_path, tmp_path / "logs" / "nobody.log", 1
        )
        running.processes = Processes(
            ReplicaSet(ReplicaPolicy(has_sidecar=False, backoff_ms=10)), running.command, running._on_event
        )
        running.processes.scale(1)
        await running.until(lambda: len(running.events) == 2)
        assert all(isinstance(event, Restarting) and event.code == 127 for event in running.events)
        assert "cannot execute /no/such/program" in (tmp_path / "logs" / "nobody.log").read_text()

    play(tmp_path, story)


def test_who_ends_before_having_begun_ends(tmp_path: Path) -> None:
    async def story(running: ProcessesUnderTest) -> None:
        running.processes.scale(1)
        running.processes.scale(0)
        await running.until(lambda: ReplicaStopped(0) in running.events)

    play(tmp_path, story)
