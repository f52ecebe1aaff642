"""
Ends a test process whose test goes on beyond its time limit, with the stacks of all threads.

At the limit pytest-timeout raises in the main thread. Code that catches the exception, or waits without end while it cleans up,
would hold up the whole run and leave no word about where.
"""

import faulthandler
import os
from collections.abc import Generator

import pytest

GRACE_OPTION = "hang_grace"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`hang_grace`: what a test may take to clean up after its limit."""
    parser.addini(
        GRACE_OPTION, "seconds between a test's time limit and the end of its process", default="60"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the guard while standard error is not captured."""
    config.pluginmanager.register(HangGuard(config))


class HangGuard:
    """One timer, of the test that runs or of the end of the process."""

    def __init__(self, config: pytest.Config) -> None:
        self._grace_s = float(config.getini(GRACE_OPTION))
        self._default_s = float(config.getini("timeout") or 0)
        self._stderr = os.dup(2)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Time a test with its setup and teardown."""
        mark = item.get_closest_marker("timeout")
        limit_s = float(mark.args[0]) if mark else self._default_s
        self._begin(limit_s)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Time the end of the process: its threads end, and what was registered for its exit."""
        self._begin(self._default_s)

    def _begin(self, limit_s: float) -> None:
        faulthandler.dump_traceback_later(limit_s + self._grace_s, exit=True, file=self._stderr)
