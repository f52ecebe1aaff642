"""
Queue of ConsumerGroups to reconcile: handlers add keys, workers take them, one after the other for each key.

`Schedule` decides: which key is due, what is coalesced, how long a failed one waits. `ReconcileQueue` runs it on the event loop: at
most `workers` reconciles at a time, each with a deadline, all awaited before `run` returns.
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

# A reconcile that takes longer is cancelled, and counts as failed.
RECONCILE_S = 60.0
# Of a failed reconcile: doubled with each failure in succession. An API server that works again is noticed within the maximum, and
# within 30 s by a reconcile whose last request hung until it timed out.
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 15.0
# A share of the backoff that is left out by chance, so that many that fail together are not all tried together.
JITTER = 0.5
KEYS_MAX = 10_000


class Key(NamedTuple):
    """A ConsumerGroup."""

    namespace: str
    name: str


class Schedule:
    """
    Keys and the times at which they are due, in seconds of one clock; bounded by KEYS_MAX.

    Invariant: a key is either waiting or running, never both and never twice; what is added while it runs makes it due once more
    after it has finished.
    """

    def __init__(self) -> None:
        # The heap may hold outdated entries: an entry counts if its time is the one in `_due`.
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._numbers = itertools.count()
        self._running: set[Key] = set()
        # Added while running: the earliest time of these.
        self._again: dict[Key, float] = {}
        # Failures in succession.
        self._failures: dict[Key, int] = {}

    def add(self, key: Key, at_s: float) -> bool:
        """Make a key due at a time, or earlier where it already is. Returns False if there are too many keys."""
        if key in self._running:
            self._again[key] = min(at_s, self._again.get(key, at_s))
            return True
        if key not in self._due and len(self._due) + len(self._running) >= KEYS_MAX:
            return False
        if at_s < self._due.get(key, float("inf")):
            self._due[key] = at_s
            heapq.heappush(self._heap, (at_s, next(self._numbers), key))
        return True

    def take(self, now_s: float) -> Key | None:
        """Start the key that has been due for the longest time; None if none is due."""
        self._drop_outdated()
        if not self._heap or self._heap[0][0] > now_s:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._due[key]
        self._running.add(key)
        return key

    def succeed(self, key: Key, now_s: float, again_s: float | None) -> None:
        """Finish a running key; with `again_s` it is due again after that many seconds at the latest."""
        self._failures.pop(key, None)
        self._finish(key, None if again_s is None else now_s + again_s)

    def fail(self, key: Key, now_s: float, chance: float = 0.0) -> float:
        """Finish a running key that failed; returns the seconds until it is due again, whatever was added. `chance` is from 0 up to 1."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        backoff_s = float(min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(failures - 1, 30)))
        wait_s = backoff_s * (1 - JITTER * chance)
        # A resource that fails and changes all the time must not be tried all the time.
        self._again.pop(key, None)
        self._finish(key, now_s + wait_s)
        return wait_s

    @property
    def next_s(self) -> float | None:
        """Time at which the next key is due; None without a waiting key."""
        self._drop_outdated()
        return self._heap[0][0] if self._heap else None

    @property
    def waiting(self) -> int:
        """Number of waiting keys."""
        return len(self._due)

    def _finish(self, key: Key, at_s: float | None) -> None:
        self._running.remove(key)
        times = [each for each in (at_s, self._again.pop(key, None)) if each is not None]
        if times:
            self.add(key, min(times))

    def _drop_outdated(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)


# Returns after how many seconds the key is to be reconciled again; None: when something changes. An exception: after a backoff.
Reconcile = Callable[[Key], Awaitable[float | None]]


class ReconcileQueue:
    """Runs reconciles from a Schedule; thread-confined to one event loop."""

    def __init__(self, on_failure: Callable[[Key, Exception], None], workers: int) -> None:
        self._on_failure = on_failure
        self._workers = workers
        self._schedule = Schedule()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: Key, after_s: float = 0.0) -> bool:
        """Reconcile a key, at once or after a time. Returns False if the queue is full."""
        accepted = self._schedule.add(key, asyncio.get_running_loop().time() + after_s)
        self._changed.set()
        return accepted

    @property
    def waiting(self) -> int:
        """Number of keys that wait."""
        return self._schedule.waiting

    async def run(self, reconcile: Reconcile) -> None:
        """Run until cancelled; running reconciles are cancelled then, and awaited."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                self._changed.clear()
                while len(self._tasks) < self._workers and (key := self._schedule.take(clock())) is not None:
                    self._start(key, reconcile)
                due_s = self._schedule.next_s if len(self._tasks) < self._workers else None
                await self._wait(None if due_s is None else max(0.0, due_s - clock()))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, key: Key, reconcile: Reconcile) -> None:
        task = asyncio.create_task(self._reconcile(key, reconcile))
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def _reconcile(self, key: Key, reconcile: Reconcile) -> None:
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(RECONCILE_S):
                again_s = await reconcile(key)
        # One resource must not stop the others, whatever is wrong with it.
        except Exception as error:  # noqa: BLE001
            self._schedule.fail(key, clock(), random.random())
            self._on_failure(key, error)
        else:
            self._schedule.succeed(key, clock(), again_s)

    async def _wait(self, within_s: float | None) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return
