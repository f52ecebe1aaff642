"""An application that is interrupted while it polls, by a signal's handler that raises, and goes on."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.testing import Group
from tests.sdk.consumer.reading import P0, WAIT_MS, fill, offsets, read


class InterruptedByTest(Exception):
    """Raised in the middle of whatever the application does."""


@contextmanager
def interrupts(after_s: float) -> Iterator[None]:
    def interrupt(_number: int, _frame: object) -> None:
        raise InterruptedByTest

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(after_s, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_what_comes_after_an_interrupted_poll_is_for_the_next_one(group: Group) -> None:
    consumer = group.consumer("orders")
    fill(group, 1)
    read(consumer, 1)
    # It would go on waiting until long after the test.
    with interrupts(0.1), pytest.raises(InterruptedByTest):
        consumer.poll(timeout_ms=WAIT_MS)
    polling = threading.Timer(0.1, fill, (group, 1))
    polling.start()
    assert offsets(read(consumer, 1)) == [1]
    polling.join()
    consumer.close()
    assert group.committed[P0] == 2


def test_nothing_counts_as_read_that_came_after_an_interrupted_poll_to_an_application_that_ends(
    group: Group,
) -> None:
    consumer = group.consumer("orders")
    fill(group, 1)
    read(consumer, 1)
    with interrupts(0.1), pytest.raises(InterruptedByTest):
        consumer.poll(timeout_ms=WAIT_MS)
    fill(group, 1)
    consumer.close()
    assert group.committed[P0] == 1
