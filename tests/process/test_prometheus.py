"""The Prometheus that tests start: it judges rules, scrapes what a test serves, and leaves nothing behind."""

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.process import command
from tests.support.prometheus.fixtures import StartPrometheus
from tests.support.prometheus.programs import RulesRefused, check_rules, run_rule_tests
from tests.support.prometheus.server import QueryRefused, Sample
from tests.support.workdir import sweep

pytestmark = pytest.mark.process

RULE = "lag:max"


class Metrics(BaseHTTPRequestHandler):
    """Serves one gauge."""

    def do_GET(self) -> None:
        body = b'# TYPE lag gauge\nlag{partition="3"} 42\n'
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def target() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write(tmp_path / "rules.json", rules_file("max by (job) (lag)"))


def test_scrapes_what_a_test_serves_and_evaluates_its_rules(
    start_prometheus: StartPrometheus, target: str, rules: Path
) -> None:
    prometheus = start_prometheus(rules=[rules])
    assert prometheus.query("lag") == []

    prometheus.scrape({"coordinator": [target]})

    seen = {"__name__": "lag", "instance": target, "job": "coordinator", "partition": "3"}
    assert prometheus.wait_for("lag") == [Sample(seen, 42.0)]
    assert prometheus.wait_for(RULE) == [Sample({"__name__": RULE, "job": "coordinator"}, 42.0)]


def test_query_that_does_not_parse_is_refused(start_prometheus: StartPrometheus) -> None:
    with pytest.raises(QueryRefused, match="parse error"):
        start_prometheus().query("sum(")


def test_right_rule_passes_check_and_test(tmp_path: Path, rules: Path) -> None:
    check_rules(rules)
    run_rule_tests(expectation(tmp_path, rules, value=7))


def test_wrong_expectation_is_refused(tmp_path: Path, rules: Path) -> None:
    with pytest.raises(RulesRefused, match="exp:"):
        run_rule_tests(expectation(tmp_path, rules, value=8))


def test_rule_that_does_not_parse_is_refused(tmp_path: Path) -> None:
    wrong = write(tmp_path / "wrong.json", rules_file("max by (job) lag"))

    with pytest.raises(RulesRefused, match="could not parse expression"):
        check_rules(wrong)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ended_command_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    with command.started("prometheus", log=tmp_path / "log") as prometheus:
        assert len(prometheus.servers) == 1
        folder = prometheus.folder()

        assert prometheus.end(how) == (-how if how == signal.SIGKILL else 0)

        assert prometheus.left_behind() == []
    if how == signal.SIGKILL:
        sweep("prometheus")  # what the next start begins with
    assert not folder.exists()


def rules_file(expression: str) -> dict[str, object]:
    return {"groups": [{"name": "lag", "rules": [{"record": RULE, "expr": expression}]}]}


def expectation(folder: Path, rules: Path, *, value: int) -> Path:
    """A promtool test of the rule: the highest of 7 and 5 is expected to be `value`."""
    series = [("0", "7"), ("1", "5")]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": f'lag{{job="x", partition="{partition}"}}', "values": lag} for partition, lag in series
        ],
        "promql_expr_test": [
            {
                "expr": RULE,
                "eval_time": "0m",
                "exp_samples": [{"labels": f'{RULE}{{job="x"}}', "value": value}],
            }
        ],
    }
    return write(folder / "test.json", {"rule_files": [str(rules)], "tests": [test]})


def write(file: Path, content: dict[str, object]) -> Path:
    file.write_text(json.dumps(content))
    return file
