"""
An event loop whose clock is a number, and processes on it that can be stopped, woken and killed between any two
turns.

The shipping code runs on it unchanged. When nothing is ready the clock jumps to the next timer; when there is none
either, the run is deadlocked, and that is raised. A process is all that was started in its context: asyncio passes
the context on to all that the process schedules, so that nothing of a killed one runs again, not even a `finally`,
and events for a stopped one wait until it is woken.
"""

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple, Unpack

from typing_extensions import override

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
Waiting = tuple["Process | None", asyncio.Handle]
NEVER = -1
JUMPS_MAX = 1_000

PROCESS: "contextvars.ContextVar[Process | None]" = contextvars.ContextVar("process", default=None)


class Stuck(AssertionError):
    """Every task waits, and no timer is set; or time does not pass."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        # Called after every turn of a process.
        self.after_turn: Callable[[Process, bool], None] = lambda process, by_timer: None
        self._turns: deque[Waiting] = deque()
        self._timers: list[tuple[float, int, Process | None, asyncio.TimerHandle]] = []
        self._jumps = 0
        self._numbers = itertools.count()
        self.processes = itertools.count()
        self._failure: BaseException | None = None
        # Kept to the end: what a killed process leaves open must not be closed, and so run on, when memory is cleaned.
        self._tasks: list[asyncio.Task[Any]] = []
        # Where the world acts that belongs to no process: networks and disks.
        self._outside = contextvars.Context()

    @override
    def time(self) -> float:
        return self.now_s

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._turns.append((owner(context), handle))
        return handle

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), owner(context), handle))
        return handle

    @override
    def create_task(
        self,
        coro: "Generator[Any, None, Result] | Coroutine[Any, Any, Result]",
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[Result]":
        task = asyncio.Task(coro, loop=self, context=context)
        self._tasks.append(task)
        return task

    def outside(
        self, delay_s: float, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments
    ) -> asyncio.TimerHandle:
        """Do something after a time that no process can prevent."""
        return self.call_at(self.now_s + delay_s, callback, *args, context=self._outside)

    def again(self, process: "Process", turns: list[asyncio.Handle]) -> None:
        """A stopped process goes on: with all that reached it, in that order."""
        self._turns.extend((process, handle) for handle in turns)

    def fail(self, failure: BaseException) -> None:
        """End the run with this, at the end of the present turn."""
        self._failure = self._failure or failure

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # A callback failed. Futures that nobody asks belong to processes that were killed.
        if "handle" in context:
            self.fail(context["exception"])

    @override
    def run_until_complete(self, future: Any) -> Any:
        task: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        asyncio.events._set_running_loop(self)
        try:
            while not task.done():
                self._turn()
                if self._failure is not None:
                    raise self._failure
        finally:
            asyncio.events._set_running_loop(None)
        return task.result()

    def bury(self) -> None:
        """End the tasks that are left after the run."""
        for task in self._tasks:
            body = task.get_coro()
            if not task.done() and body is not None:
                with contextlib.suppress(RuntimeError):  # it waits even then
                    body.close()
        self._tasks.clear()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is dropped when its time comes."""

    def _turn(self) -> None:
        if not self._turns:
            self._jump()
        process, handle = self._turns.popleft()
        if handle.cancelled():
            return
        if process is None:
            handle._run()
        elif process.parked is not None:
            process.parked.append(handle)
        elif process.may_run():
            handle._run()
            self.after_turn(process, isinstance(handle, asyncio.TimerHandle))

    def _jump(self) -> None:
        """Let the time pass until something is due."""
        timers = self._timers
        while timers and timers[0][3].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Stuck("everybody waits for something that will never come")
        if timers[0][0] > self.now_s:
            self.now_s, self._jumps = timers[0][0], 0
        self._jumps += 1
        if self._jumps > JUMPS_MAX:
            raise Stuck("timers without end are due at the same time")
        while timers and timers[0][0] <= self.now_s:
            _, _, process, handle = heapq.heappop(timers)
            self._turns.append((process, handle))


class Process:
    """Whatever was started in one context."""

    def __init__(self, loop: VirtualLoop, owner: object = None) -> None:
        self.loop = loop
        self.number = next(loop.processes)
        self.owner = owner
        self.alive = True
        # What waits while the process is stopped; None while it runs.
        self.parked: list[asyncio.Handle] | None = None
        # The process dies when it has no turn left.
        self.turns_left = NEVER
        self.doom: Callable[[], None] = lambda: None
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)
        # For how long it was stopped in all.
        self.stopped_s = 0.0
        self._stopped_at_s = 0.0
        self._wake: asyncio.TimerHandle | None = None

    def spawn(self, body: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a program in this process; if it fails, so does the run."""
        task = self.loop.create_task(body, context=self.context)
        task.add_done_callback(self._ended)
        return task

    def may_run(self) -> bool:
        """Return whether the process has a turn; it may die instead."""
        self.turns_left -= 1
        if self.turns_left == 0:
            self.doom()
        return self.alive

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False
        self.parked = None

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while; a second stop in that time does nothing."""
        if self.parked is None and self.alive:
            self.parked = []
            self._stopped_at_s = self.loop.now_s
            self._wake = self.loop.outside(seconds, self.wake)

    def wake(self) -> None:
        """SIGCONT."""
        if self.parked is not None:
            assert self._wake is not None
            self._wake.cancel()
            self.stopped_s += self.loop.now_s - self._stopped_at_s
            turns, self.parked = self.parked, None
            self.loop.again(self, turns)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self.loop.fail(failure)


def owner(context: contextvars.Context | None) -> Process | None:
    """The process that a callback belongs to."""
    return PROCESS.get() if context is None else context.get(PROCESS)


def run(loop: VirtualLoop, body: Coroutine[Any, Any, Result]) -> Result:
    """Run a program to its end in virtual time; nothing of what it leaves behind runs on."""
    # Tasks and futures are cycles, and nearly all of them are needed to the end: there is nothing to find before.
    gc.disable()
    # What was there before is not looked through at the end of each run.
    gc.freeze()
    try:
        result: Result = loop.run_until_complete(body)
    finally:
        loop.bury()
        loop.close()
        gc.enable()
        gc.collect()
    return result
