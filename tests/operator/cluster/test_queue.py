"""The queue of reconciles on an event loop: bounded concurrency, failures reported, everything awaited at the end."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota_operator.cluster import queues
from rota_operator.cluster.queues import Key, Reconcile, ReconcileQueue

KEYS = [Key("shop", f"group-{number}") for number in range(6)]
WITHIN_S = 60


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WITHIN_S):
            await story()

    asyncio.run(bounded())


def ignore(key: Key, error: Exception) -> None:
    raise AssertionError(f"{key}: {error}")


async def stop(running: "asyncio.Task[None]") -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_no_more_reconciles_run_at_a_time_than_there_are_workers() -> None:
    async def story() -> None:
        queue, at_a_time, most, left = ReconcileQueue(ignore, workers=2), 0, 0, set(KEYS)
        done = asyncio.Event()

        async def reconcile(key: Key) -> None:
            nonlocal at_a_time, most
            at_a_time += 1
            most = max(most, at_a_time)
            for _ in range(3):
                await asyncio.sleep(0)
            at_a_time -= 1
            left.discard(key)
            if not left:
                done.set()

        running = asyncio.create_task(queue.run(reconcile))
        for key in KEYS:
            assert queue.add(key)
        await done.wait()
        assert most == 2
        await stop(running)

    run(story)


def test_a_failure_is_reported_and_does_not_stop_the_others() -> None:
    async def story() -> None:
        failures: list[tuple[Key, str]] = []
        done = asyncio.Event()

        async def reconcile(key: Key) -> None:
            if key == KEYS[0]:
                raise ValueError("broken")
            done.set()

        queue = ReconcileQueue(lambda key, error: failures.append((key, str(error))), workers=1)
        running = asyncio.create_task(queue.run(reconcile))
        queue.add(KEYS[0])
        queue.add(KEYS[1])
        await done.wait()
        assert failures == [(KEYS[0], "broken")]
        assert queue.waiting == 1  # the failed one, later
        await stop(running)

    run(story)


def test_a_reconcile_that_exceeds_its_deadline_is_cancelled_and_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "RECONCILE_S", 0.0)

    async def story() -> None:
        failed = asyncio.Event()
        queue = ReconcileQueue(lambda key, error: failed.set(), workers=1)

        async def reconcile(key: Key) -> None:
            await asyncio.Event().wait()

        running = asyncio.create_task(queue.run(reconcile))
        queue.add(KEYS[0])
        await failed.wait()
        await stop(running)

    run(story)


def test_the_end_of_the_queue_cancels_and_awaits_what_runs() -> None:
    async def story() -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        async def reconcile(key: Key) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.set()

        running = asyncio.create_task(ReconcileQueue(ignore, workers=1).run(reconcile))
        await asyncio.sleep(0)
        assert not started.is_set()
        await stop(running)

        queue = ReconcileQueue(ignore, workers=1)
        running = asyncio.create_task(queue.run(reconcile))
        queue.add(KEYS[0])
        await started.wait()
        await stop(running)
        assert ended.is_set()

    run(story)


def test_a_key_is_reconciled_again_after_the_time_that_its_reconcile_returned() -> None:
    async def story() -> None:
        rounds = asyncio.Queue[Key]()

        async def reconcile(key: Key) -> float | None:
            rounds.put_nowait(key)
            return 0.0 if rounds.qsize() < 3 else None

        queue = ReconcileQueue(ignore, workers=1)
        wanted: Reconcile = reconcile
        running = asyncio.create_task(queue.run(wanted))
        queue.add(KEYS[0])
        assert [await rounds.get(), await rounds.get(), await rounds.get()] == [KEYS[0]] * 3
        await stop(running)

    run(story)
