"""The Grafana dashboard; `tests/monitoring` evaluates its queries on a Prometheus that has scraped a scenario."""

import json
import re

import pytest

from tests.chart.rendered import of_kind
from tests.support import helm
from tests.support.documented_metrics import labels_by_name
from tests.support.helm import CHART, Object

pytestmark = pytest.mark.process

TEXT = (CHART / "files" / "dashboard.json").read_text()
DASHBOARD: Object = json.loads(TEXT)
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


def asked(query: str) -> str:
    """The query as Grafana sends it, with all namespaces and names."""
    return re.sub(r"\$(namespace|name)\b", ".*", query)


def test_queries_read_documented_metrics_only() -> None:
    assert len(QUERIES) > 20
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
