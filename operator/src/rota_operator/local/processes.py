"""
The processes of one workload: performs the actions of `rota_operator.replicas` and feeds their results back as events.

Thread-confined to one event loop. Output of a process goes to the log file of its replica.
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
    DesiredReplicas,
    Drain,
    Drained,
    DrainFailed,
    Event,
    Exited,
    ForceStop,
    Kill,
    ProcessRole,
    ReplicaStopped,
    Restarting,
    Start,
    Started,
    Terminate,
    Tick,
)
from rota_operator.replicas.replica_set import ReplicaSet
from rota_service.private_files import OTHERS

SUPERVISOR = "rota_operator.local.supervisor"


@dataclass(frozen=True)
class Command:
    """Command of one process, with its environment and files."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    log: Path
    # After the runner has died: time in seconds until the supervisor kills the process.
    grace_s: float
    # Drain socket of a sidecar.
    drain_socket: Path | None = None
    # Umask of the process; an application has the user's.
    umask: int = OTHERS


ReplicaEvent = Restarting | ReplicaStopped | DrainFailed


class Processes:
    """The running processes of one workload, each on a supervisor; create on a running event loop."""

    def __init__(
        self,
        replicas: ReplicaSet,
        command_for: Callable[[int, ProcessRole], Command],
        on_event: Callable[[ReplicaEvent], None],
    ) -> None:
        self._replicas = replicas
        self._command_for = command_for
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._started_s = self._loop.time()
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._commands: dict[int, Command] = {}
        self._roles: dict[int, tuple[int, ProcessRole]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Processes that were asked to stop before they had started.
        self._early_signals: dict[int, signal.Signals] = {}
        self._tick_timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._failed: asyncio.Future[None] = self._loop.create_future()

    @property
    def replicas(self) -> ReplicaSet:
        """The replica set, for reading only."""
        return self._replicas

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Future that fails with the first unexpected exception."""
        return self._failed

    def scale(self, count: int) -> None:
        """Set the desired number of replicas."""
        self._handle(DesiredReplicas(count))

    def kill(self, replica: int) -> None:
        """Kill all processes of a replica at once, as a crash would; they are restarted."""
        for run, (number, _) in list(self._roles.items()):
            if number == replica:
                self._signal(run, signal.SIGQUIT)

    def force_stop(self) -> None:
        """Skip the drains of stopping replicas and shorten their grace period."""
        self._handle(ForceStop())

    async def stop(self) -> None:
        """Scale to zero and wait until all processes have exited."""
        self.scale(0)
        while self._replicas.replicas:
            self._empty.clear()
            await self._empty.wait()

    def _handle(self, event: Event) -> None:
        now_ms = int((self._loop.time() - self._started_s) * 1000)
        for action in self._replicas.step(event, now_ms):
            self._perform(action)
        if not self._replicas.replicas:
            self._empty.set()
        self._schedule_tick()

    def _perform(self, action: Action) -> None:
        match action:
            case Start():
                self._spawn(self._run(action))
            case Drain(run):
                self._spawn(self._drain(run, self._commands[run]))
            case Terminate(run):
                self._signal(run, signal.SIGTERM)
            case Kill(run):
                # The supervisor turns SIGQUIT into SIGKILL for the process; SIGKILL would end the supervisor
                # alone.
                self._signal(run, signal.SIGQUIT)
            case Restarting() | ReplicaStopped() | DrainFailed():
                self._on_event(action)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    async def _drain(self, run: int, command: Command) -> None:
        """Drain a sidecar; finishes at the latest when the sidecar's grace period ends."""
        assert command.drain_socket is not None, "only a sidecar drains"
        self._handle(Drained(run, await ask_to_drain(command.drain_socket, command.grace_s)))

    def _signal(self, run: int, number: signal.Signals) -> None:
        process = self._running.get(run)
        if process is None:
            self._early_signals[run] = number
        elif process.returncode is None:
            process.send_signal(number)

    async def _run(self, start: Start) -> None:
        """Run one process from start to exit."""
        command = self._command_for(start.replica, start.part)
        self._commands[start.run] = command
        command.log.parent.mkdir(parents=True, exist_ok=True)
        pid_file = command.log.with_suffix(".pid").absolute()
        supervisor = [
            sys.executable,
            "-m",
            SUPERVISOR,
            str(command.grace_s),
            str(pid_file),
            f"{command.umask:03o}",
        ]
        with command.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *supervisor,
                *command.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=command.folder,
                env={**os.environ, **command.environment},
                start_new_session=True,
            )
        self._running[start.run] = process
        self._roles[start.run] = start.replica, start.part
        self._handle(Started(start.run))
        if (number := self._early_signals.pop(start.run, None)) is not None:
            self._signal(start.run, number)
        code = await process.wait()
        del self._running[start.run], self._commands[start.run], self._roles[start.run]
        self._handle(Exited(start.run, code))

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _schedule_tick(self) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        alarm_ms = self._replicas.next_tick_ms
        self._tick_timer = (
            None
            if alarm_ms is None
            else self._loop.call_at(self._started_s + alarm_ms / 1000 + 0.001, self._handle, Tick())
        )
