"""Prints, at the end of a run, how many cases passed on which coordinator."""

from collections import Counter

import pytest

from tests.conformance.registry import CASES

ENGINES = {"test_core": "core", "test_rota": "Rota's server", "test_kafka": "Kafka"}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each coordinator that was asked."""
    passed: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            test = report.nodeid.partition("::")[2].partition("[")[0]
            if "tests/conformance/" in report.nodeid and test in ENGINES and report.when == "call":
                asked[test] += 1
                passed[test] += outcome == "passed"
    for test, name in ENGINES.items():
        if asked[test]:
            terminalreporter.write_line(
                f"conformance: {passed[test]} of {len(CASES)} cases pass on {name} (docs/divergences.md: what differs)"
            )
