"""
The processes of one workload: performs what `rota_operator.replicas` decides, and tells it what became of that.

Everything happens on one loop. What a process writes goes to a file of its replica.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rota_operator.local.drain_client import ask_to_drain
from rota_operator.replicas.events import (
    Action,
    Again,
    Drain,
    Drained,
    Event,
    Exited,
    Gone,
    Hurry,
    Kill,
    Part,
    Start,
    Started,
    Terminate,
    Tick,
    Undrained,
    Wanted,
)
from rota_operator.replicas.replica_set import ReplicaSet
from rota_service.private_files import OTHERS

LEASH = "rota_operator.local.supervisor"


@dataclass(frozen=True)
class Command:
    """What a process is."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    log: Path
    # When the runner has died.
    grace_s: float
    # Of a sidecar: where it can be asked to drain.
    drain_socket: Path | None = None
    # Of the process; an application has its user's.
    umask: int = OTHERS


Told = Again | Gone | Undrained


class Processes:
    """To be made and used on a running loop."""

    def __init__(
        self,
        replicas: ReplicaSet,
        command_for: Callable[[int, Part], Command],
        tell: Callable[[Told], None],
    ) -> None:
        self._replicas = replicas
        self._command_for = command_for
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._commands: dict[int, Command] = {}
        self._places: dict[int, tuple[int, Part]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Asked to end before they had begun.
        self._too_late: dict[int, signal.Signals] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._broken: asyncio.Future[None] = self._loop.create_future()

    @property
    def replicas(self) -> ReplicaSet:
        """For looking at."""
        return self._replicas

    @property
    def broken(self) -> "asyncio.Future[None]":
        """Raises what nobody expected."""
        return self._broken

    def want(self, count: int) -> None:
        """There are to be so many replicas."""
        self._hear(Wanted(count))

    def kill(self, replica: int) -> None:
        """End all of a replica's processes at once, as a crash does; they are started again."""
        for run, (number, _) in list(self._places.items()):
            if number == replica:
                self._signal(run, signal.SIGQUIT)

    def hurry(self) -> None:
        """Those that end are given a moment, and no more."""
        self._hear(Hurry())

    async def end(self) -> None:
        """None, in good order."""
        self.want(0)
        while self._replicas.replicas:
            self._empty.clear()
            await self._empty.wait()

    def _hear(self, event: Event) -> None:
        now_ms = int((self._loop.time() - self._began_s) * 1000)
        for action in self._replicas.step(event, now_ms):
            self._perform(action)
        if not self._replicas.replicas:
            self._empty.set()
        self._set_alarm()

    def _perform(self, action: Action) -> None:
        match action:
            case Start():
                self._do(self._run(action))
            case Drain(run):
                self._do(self._drain(run, self._commands[run]))
            case Terminate(run):
                self._signal(run, signal.SIGTERM)
            case Kill(run):
                # Its leash hears that; SIGKILL would end the leash alone.
                self._signal(run, signal.SIGQUIT)
            case Again() | Gone() | Undrained():
                self._tell(action)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _drain(self, run: int, command: Command) -> None:
        """Ends at the latest with the sidecar, which is not given more time than that."""
        assert command.drain_socket is not None, "only a sidecar drains"
        self._hear(Drained(run, await ask_to_drain(command.drain_socket, command.grace_s)))

    def _signal(self, run: int, number: signal.Signals) -> None:
        process = self._running.get(run)
        if process is None:
            self._too_late[run] = number
        elif process.returncode is None:
            process.send_signal(number)

    async def _run(self, start: Start) -> None:
        """A process, from its start to its end."""
        command = self._command_for(start.replica, start.part)
        self._commands[start.run] = command
        command.log.parent.mkdir(parents=True, exist_ok=True)
        pid_file = command.log.with_suffix(".pid").absolute()
        leash = [sys.executable, "-m", LEASH, str(command.grace_s), str(pid_file), f"{command.umask:03o}"]
        with command.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *leash,
                *command.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=command.folder,
                env={**os.environ, **command.environment},
                start_new_session=True,
            )
        self._running[start.run] = process
        self._places[start.run] = start.replica, start.part
        self._hear(Started(start.run))
        if (number := self._too_late.pop(start.run, None)) is not None:
            self._signal(start.run, number)
        code = await process.wait()
        del self._running[start.run], self._commands[start.run], self._places[start.run]
        self._hear(Exited(start.run, code))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._broken.done():
            self._broken.set_exception(error)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        alarm_ms = self._replicas.alarm
        self._alarm = (
            None
            if alarm_ms is None
            else self._loop.call_at(self._began_s + alarm_ms / 1000 + 0.001, self._hear, Tick())
        )
