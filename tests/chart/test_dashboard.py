"""The Grafana dashboard: each of its queries has an answer on a Prometheus that scraped every part."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from typing_extensions import override

from scripts.generate_metrics_reference import coordinator, operator, sidecar
from tests.chart.rendered import of_kind
from tests.support import helm
from tests.support.documented_metrics import labels_by_name
from tests.support.helm import CHART, Object
from tests.support.prometheus import Prometheus
from tests.support.prometheus.fixtures import StartPrometheus

pytestmark = pytest.mark.process

TEXT = (CHART / "files" / "dashboard.json").read_text()
DASHBOARD: Object = json.loads(TEXT)
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


class Parts(Collector):
    """Everything that the three parts export, as the reference of metrics has it."""

    @override
    def collect(self) -> Iterator[object]:  # type: ignore[override]  # as prometheus_client's own collectors
        for part in (coordinator, sidecar, operator):
            yield from part()


class Page(BaseHTTPRequestHandler):
    """Serves them."""

    def do_GET(self) -> None:
        registry = CollectorRegistry()
        registry.register(Parts())
        body = generate_latest(registry)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def prometheus(start_prometheus: StartPrometheus) -> Iterator[Prometheus]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found = start_prometheus()
        found.scrape({"rota": [f"127.0.0.1:{server.server_port}"]})
        # A rate takes two scrapes.
        found.wait_for("count_over_time(rota_group_info[5m]) > 2")
        yield found
        server.shutdown()
        thread.join()


def asked(query: str) -> str:
    """The query as Grafana sends it, with all namespaces and names."""
    return re.sub(r"\$(namespace|name)\b", ".*", query)


def test_no_query_is_empty(prometheus: Prometheus) -> None:
    assert len(QUERIES) > 20
    assert [query for query in QUERIES if not prometheus.query(asked(query))] == []


def test_queries_read_documented_metrics_only() -> None:
    names = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"rota_\w+", " ".join(QUERIES))}
    assert names <= labels_by_name().keys()


def test_panels_have_ids_and_positions_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    corners = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(corners) == len(set(corners))
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


def test_the_chart_has_it_where_it_is_asked_for() -> None:
    name = "rota-dashboard"
    assert name not in {each["metadata"]["name"] for each in of_kind(helm.render(), "ConfigMap")}
    [found] = [
        each
        for each in of_kind(helm.render("--set=monitoring.dashboard.enabled=true"), "ConfigMap")
        if each["metadata"]["name"] == name
    ]
    assert json.loads(found["data"]["rota.json"]) == DASHBOARD
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
