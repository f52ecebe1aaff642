"""
Certificates, PodMonitors, ServiceMonitors and PrometheusRules of the chart are accepted by an API server that has their own definitions.

Neither cert-manager nor the Prometheus operator runs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.chart.rendered import FILES, of_kind
from tests.support import helm
from tests.support.cluster import Cluster
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.definitions import CERT_MANAGER, PROMETHEUS_OPERATOR
from tests.support.helm import Object

pytestmark = pytest.mark.api_server

DEFINITIONS = (
    "certificates.cert-manager.io",
    "podmonitors.monitoring.coreos.com",
    "servicemonitors.monitoring.coreos.com",
    "prometheusrules.monitoring.coreos.com",
)
MONITORS = ("--set=monitoring.podMonitor.enabled=true", "--set=monitoring.serviceMonitor.enabled=true")
ALERTS = "--set=monitoring.prometheusRule.enabled=true"


@pytest.fixture(scope="module")
def with_definitions(api_server: Cluster) -> Iterator[Cluster]:
    """The cluster, whose API server serves all of these kinds for the module."""
    for each in (CERT_MANAGER, PROMETHEUS_OPERATOR):
        api_server.kubectl("apply", "--server-side", "--filename", str(each.fetched()))
    names = [f"customresourcedefinition/{name}" for name in DEFINITIONS]
    for name in DEFINITIONS:
        api_server.wait_served(name)
    yield api_server
    api_server.kubectl("delete", *names, "--wait=false")


def apply(cluster: Cluster, found: Sequence[Object]) -> str:
    """Apply as kubectl and Helm do, with unknown fields refused, without storing it."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    return cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", "-", input=text)


def assert_refused(cluster: Cluster, found: Object, changes: Sequence[Mapping[str, Any]]) -> None:
    """Change a field of the object's spec at a time; the API server names it in its refusal."""
    for wrong in changes:
        with pytest.raises(KubectlFailed, match=next(iter(wrong))):
            apply(cluster, [{**found, "spec": {**found["spec"], **wrong}}])


def test_the_certificates_of_the_chart_fit_cert_managers_definition(
    with_definitions: Cluster, namespace: str
) -> None:
    objects = helm.render(*FILES["values-cert-manager.yaml"], namespace=namespace)
    certificates = of_kind(objects, "Certificate")
    said = apply(with_definitions, certificates)
    assert said.count("certificate.cert-manager.io/rota-") == len(certificates) == 2
    # What they issue is what the pods mount.
    mounted = {
        volume["secret"]["secretName"]
        for workload in of_kind(objects, "Deployment", "StatefulSet")
        for volume in workload["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    }
    assert {each["spec"]["secretName"] for each in certificates} <= mounted
    wrong = (
        {"privateKey": {"algorithm": "EC"}},
        {"usages": ["serving"]},
        {"issuer": "rota"},
        {"issuerRef": None},
    )
    assert_refused(with_definitions, certificates[0], wrong)


@pytest.mark.parametrize(
    ("kind", "endpoints", "count"),
    [("PodMonitor", "podMetricsEndpoints", 3), ("ServiceMonitor", "endpoints", 2)],
)
def test_the_monitors_of_the_chart_fit_the_prometheus_operators_definition(
    with_definitions: Cluster, namespace: str, kind: str, endpoints: str, count: int
) -> None:
    monitors = of_kind(helm.render(*MONITORS, namespace=namespace), kind)
    said = apply(with_definitions, monitors)
    assert said.count(f"{kind.lower()}.monitoring.coreos.com/rota-") == len(monitors) == count
    [endpoint] = monitors[0]["spec"][endpoints]
    wrong: tuple[Object, ...] = (
        {endpoints: [{**endpoint, "interval": "half a minute"}]},
        {endpoints: [{**endpoint, "portName": "http"}]},
        {"podSelector": {}},
        {"selector": None},
    )
    assert_refused(with_definitions, monitors[0], wrong)


def test_the_alerts_of_the_chart_fit_the_prometheus_operators_definition(
    with_definitions: Cluster, namespace: str
) -> None:
    [rule] = of_kind(helm.render(ALERTS, namespace=namespace), "PrometheusRule")
    assert "prometheusrule.monitoring.coreos.com/rota" in apply(with_definitions, [rule])
    [first, *_] = rule["spec"]["groups"]
    wrong: tuple[Object, ...] = (
        {"groups": [{**first, "rules": [{**first["rules"][0], "for": "soon"}]}]},
        {"groups": [{**first, "interval": "often"}]},
        {"rules": []},
    )
    assert_refused(with_definitions, rule, wrong)
