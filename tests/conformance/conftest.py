"""The broker that all tests here share, and the table of the cases that passed on each coordinator."""

from collections import Counter

import pytest

from tests.conformance import table
from tests.conformance.brokers import prepare
from tests.conformance.driver import CORE, DEFAULT, KAFKA, ROTA, SIDECAR_KAFKA, SIDECAR_ROTA
from tests.support.kafka import Kafka

TESTS = {
    "test_core": CORE,
    "test_rota": ROTA,
    "test_kafka": KAFKA,
    "test_retention_on_kafka": KAFKA,
    "test_sidecar_on_rota": SIDECAR_ROTA,
    "test_sidecar_on_kafka": SIDECAR_KAFKA,
}


@pytest.fixture(scope="session")
def prepared(kafka: Kafka) -> Kafka:
    """The shared broker, which has the default settings, with the cases' topics. Each test process makes them once."""
    prepare(kafka, DEFAULT)
    return kafka


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One row for each coordinator that was asked all its cases."""
    passed: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            test = report.nodeid.partition("::")[2].partition("[")[0]
            # A case fails in its setup when its coordinator could not be started.
            if "tests/conformance/" in report.nodeid and test in TESTS and counts(report):
                asked[test] += 1
                passed[test] += outcome == "passed"
    rows = {test: table.Row(TESTS[test], asked[test], passed[test]) for test in asked}
    for test, row in rows.items():
        table.put_down(test, row)
    if rows:
        terminalreporter.write_line(table.text(table.added(rows.values())))


def counts(report: pytest.TestReport) -> bool:
    return report.when == "call" or report.failed
