"""What the simulation has to tell beyond pass and fail: shown at the end of a run."""

import pytest

LINES: list[str] = []


@pytest.fixture
def report() -> list[str]:
    """Lines for the end of the run."""
    return LINES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show them."""
    if LINES:
        terminalreporter.section("simulation")
        for line in LINES:
            terminalreporter.write_line(line)
