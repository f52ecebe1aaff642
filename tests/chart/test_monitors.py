"""PodMonitor and ServiceMonitor: each finds every replica of its part once, at the port that serves metrics; sidecars too."""

import pytest

from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.sidecar import HTTP_PORT_NAME
from tests.chart.rendered import container, of_kind
from tests.support import helm
from tests.support.helm import Object

pytestmark = pytest.mark.process

ON = tuple(f"--set=monitoring.{kind}.enabled=true,monitoring.{kind}.labels.team=rota" for kind in ("podMonitor", "serviceMonitor"))  # fmt: skip
SIDECARS = "rota-sidecars"
WORKLOADS = {"rota-operator": "Deployment", "rota-coordinator": "StatefulSet"}


def is_selected(labels: Object, monitor: Object) -> bool:
    """Return whether a monitor selects an object with these labels."""
    return bool(monitor["spec"]["selector"]["matchLabels"].items() <= labels.items())


def monitors(kind: str) -> list[Object]:
    """The monitors of a kind for the chart's own pods, with the label that Prometheus selects them by."""
    found = of_kind(helm.render(*ON), kind)
    assert all(each["metadata"]["labels"]["team"] == "rota" for each in found)
    own = [each for each in found if each["metadata"]["name"] != SIDECARS]
    assert {each["metadata"]["name"] for each in own} == WORKLOADS.keys()
    return own


def test_by_default_there_is_none() -> None:
    assert of_kind(helm.render(), "PodMonitor", "ServiceMonitor") == []


def test_a_pod_monitor_finds_the_pods_of_its_part_alone() -> None:
    objects = helm.render(*ON)
    for monitor in monitors("PodMonitor"):
        templates = {
            each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
            for each in of_kind(objects, "Deployment", "StatefulSet", "Job")
        }
        name = monitor["metadata"]["name"]
        assert [each for each, labels in templates.items() if is_selected(labels, monitor)] == [name]
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        ports = container(objects, WORKLOADS[name], name)["ports"]
        assert endpoint["path"] == "/metrics"
        assert endpoint["honorLabels"] is True
        assert endpoint["port"] in {each["name"] for each in ports}


def test_a_service_monitor_finds_each_replica_once() -> None:
    services = of_kind(helm.render(*ON), "Service")
    for monitor in monitors("ServiceMonitor"):
        [endpoint] = monitor["spec"]["endpoints"]
        found = [
            each["spec"]
            for each in services
            if is_selected(each["metadata"]["labels"], monitor)
            and endpoint["port"] in {port["name"] for port in each["spec"]["ports"]}
        ]
        # Headless: an address for each pod.
        assert [each["clusterIP"] for each in found] == ["None"]


@pytest.mark.parametrize(
    ("flags", "namespaces"),
    [
        ((), {"any": True}),
        (("--set=watchNamespaces={shop,bank}",), {"matchNames": ["shop", "bank"]}),
    ],
)
def test_a_pod_monitor_finds_the_sidecars_of_the_namespaces_that_the_operator_watches(
    flags: tuple[str, ...], namespaces: Object
) -> None:
    found = of_kind(helm.render(*ON, *flags), "PodMonitor")
    [monitor] = [each for each in found if each["metadata"]["name"] == SIDECARS]
    assert monitor["spec"]["namespaceSelector"] == namespaces
    assert monitor["spec"]["selector"] == {"matchExpressions": [{"key": CLAIM_LABEL, "operator": "Exists"}]}
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": HTTP_PORT_NAME, "path": "/metrics", "interval": "30s"}
