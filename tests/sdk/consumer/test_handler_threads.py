"""The threads in which handlers run, and handlers that never return."""

import asyncio
import threading

import pytest

import rota
from rota.connection import background
from rota.handlers.threads import DaemonThreads
from rota.testing import Group
from tests.sdk.consumer.test_handlers import (
    P0,
    WITHIN_S,
    AnyRecord,
    runner_of,
    running_until,
    said_by_handlers,
)


def test_a_handler_that_never_returns_is_abandoned_at_the_end_of_its_time_and_its_record_comes_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        assert threading.current_thread().daemon, "the interpreter would wait for it"
        begun.set()
        go_on.wait()

    with Group(partitions=1) as group:
        group.send("orders", b"a")
        runner = runner_of(group, work)
        runner.finish_s = 0
        running = running_until(begun, runner)
        background().loop.call_soon_threadsafe(runner.stop)
        running.join(WITHIN_S)
        is_over = not running.is_alive()
        go_on.set()
        assert is_over
        assert group.committed.get(P0, 0) == 0
    (said,) = said_by_handlers(caplog)
    assert said.startswith("orders[0] at offset 0: the handler did not return within 0 s of the stop")


def test_threads_of_handlers_are_used_again_and_never_more_than_their_number() -> None:
    async def story() -> set[str]:
        pool = DaemonThreads(2, "worker")
        loop = asyncio.get_running_loop()
        names = [loop.run_in_executor(pool, lambda: threading.current_thread().name) for _ in range(50)]
        used = set(await asyncio.gather(*names))
        pool.shutdown()
        return used

    assert asyncio.run(story()) <= {"worker-1", "worker-2"}


def test_what_a_thread_of_a_handler_has_not_begun_is_cancelled_at_the_end() -> None:
    pool = DaemonThreads(1, "worker")
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(WITHIN_S)

    first, second = pool.submit(wait), pool.submit(wait)
    assert begun.wait(WITHIN_S)
    pool.shutdown()
    go_on.set()
    assert second.cancelled()
    assert first.result(WITHIN_S) is None
