"""Event loops of servers that run beside a test, each in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine


def run_in_thread(loop: asyncio.AbstractEventLoop, work: Coroutine[object, object, None]) -> threading.Thread:
    """
    Start a thread that runs `work` on `loop` and then closes the loop; returns the thread.

    A transport that `work` has closed ends in a later turn: without that turn its socket stays open until it is collected, in
    whichever test runs then. `Runner` has such turns.
    """

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(work)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
