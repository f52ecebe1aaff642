"""Reports of tests beyond pass and fail: shown at the end of a run, by the tests' folder."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

# The variable that names the file to which counters are appended, a JSON object for each test.
COUNTERS_FILE = "ROTA_SOAK_COUNTERS"
# In this file too: the seed with which a round begins.
SEED_BEGUN = "seed begun"
LINES: dict[str, list[str]] = defaultdict(list)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> list[str]:
    """Lines for the end of the run."""
    return LINES[Path(request.path).parent.name]


@pytest.fixture
def counters() -> Iterator[Counter[str]]:
    """Counters of this test by name, such as "kills on SQLite"; a soak records their sums, those of a failing test too."""
    counted = Counter[str]()
    yield counted
    report_to_soak(counted)


def report_to_soak(said: Mapping[str, int]) -> None:
    """Append a line for the soak that runs this test."""
    if file := os.environ.get(COUNTERS_FILE):
        with Path(file).open("a") as appended:
            appended.write(json.dumps(said) + "\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show them."""
    for folder, lines in LINES.items():
        terminalreporter.section(folder)
        for line in lines:
            terminalreporter.write_line(line)
