"""
Threads in which synchronous handlers run.

The runner submits each record's function here through `run_in_executor`. The threads are daemons: a handler that never
returns does not keep the process from exiting, as a thread of a `ThreadPoolExecutor` would.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from typing_extensions import override

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Work(NamedTuple):
    """A call, and the future of its result."""

    future: "Future[Any]"
    call: Callable[[], object]


class DaemonThreads(Executor):
    """Invariant: at most `size` threads; a thread is started only when none is idle. `submit` belongs to one thread."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._threads = 0
        self._idle = threading.Semaphore(0)
        # None ends the thread that takes it from the queue.
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()

    @override
    def submit(
        self,
        fn: Callable[Parameters, Result],
        /,
        *given: Parameters.args,
        **named: Parameters.kwargs,
    ) -> "Future[Result]":
        future: Future[Result] = Future()
        self._waiting.put(Work(future, lambda: fn(*given, **named)))
        if not self._idle.acquire(blocking=False) and self._threads < self._size:
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            run(work)
            # An idle thread holds no reference to a record.
            del work
            self._idle.release()

    @override
    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Cancel jobs that have not begun, and end the threads as they become idle; never waits for them."""
        while True:
            try:
                work = self._waiting.get_nowait()
            except Empty:
                break
            if work is not None:
                work.future.cancel()
        for _ in range(self._threads):
            self._waiting.put(None)


def run(work: Work) -> None:
    """Complete the future, unless it was cancelled before."""
    if not work.future.set_running_or_notify_cancel():
        return
    try:
        result = work.call()
    except BaseException as error:  # noqa: BLE001  it is raised where the future is awaited
        work.future.set_exception(error)
    else:
        work.future.set_result(result)
