"""Puts down, at the end of a run, how many cases passed on which coordinator, and shows the table."""

from collections import Counter

import pytest

from tests.conformance import table
from tests.conformance.driver import CORE, KAFKA, ROTA, SIDECAR_KAFKA, SIDECAR_ROTA

TESTS = {
    "test_core": CORE,
    "test_rota": ROTA,
    "test_kafka": KAFKA,
    "test_sidecar_on_rota": SIDECAR_ROTA,
    "test_sidecar_on_kafka": SIDECAR_KAFKA,
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row for each coordinator that was asked all its cases."""
    passed: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            test = report.nodeid.partition("::")[2].partition("[")[0]
            # A case fails in its setup when its coordinator could not be started.
            if "tests/conformance/" in report.nodeid and test in TESTS and counts(report):
                asked[TESTS[test]] += 1
                passed[TESTS[test]] += outcome == "passed"
    rows = [table.Row(name, asked[name], passed[name]) for name in TESTS.values() if asked[name]]
    for row in rows:
        table.put_down(row)
    if rows:
        terminalreporter.write_line(table.text(rows))


def counts(report: pytest.TestReport) -> bool:
    return report.when == "call" or report.failed
