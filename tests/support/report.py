"""What tests have to tell beyond pass and fail: shown at the end of a run, by the folder that they are in."""

from collections import defaultdict
from pathlib import Path

import pytest

LINES: dict[str, list[str]] = defaultdict(list)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> list[str]:
    """Lines for the end of the run."""
    return LINES[Path(request.path).parent.name]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show them."""
    for folder, lines in LINES.items():
        terminalreporter.section(folder)
        for line in lines:
            terminalreporter.write_line(line)
