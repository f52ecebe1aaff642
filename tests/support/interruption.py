"""An interruption of what the main thread does, at some point in it, as by a test's time limit."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

AFTER_S = 0.5


class Interrupted(Exception):
    """The test was interrupted."""


@contextmanager
def interrupted() -> Iterator[None]:
    """Interrupt the block, which has to take longer than AFTER_S; what it raises then ends here."""

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    main, before = threading.main_thread().ident, signal.signal(signal.SIGUSR1, interrupt)
    assert main is not None
    timer = threading.Timer(AFTER_S, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        signal.signal(signal.SIGUSR1, before)
        timer.join()
