"""The chart's Certificates are accepted by an API server that has cert-manager's own definitions; cert-manager itself does not run."""

import json
from collections.abc import Iterator, Sequence

import pytest

from tests.chart.rendered import FILES, of_kind
from tests.support import cert_manager, helm
from tests.support.cluster import Cluster
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.helm import Object

pytestmark = pytest.mark.cluster

DEFINITION = "customresourcedefinition/certificates.cert-manager.io"


@pytest.fixture
def with_definitions(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose API server serves Certificates for the test."""
    cluster.kubectl("apply", "--server-side", "--filename", str(cert_manager.definitions()))
    # Its conditions are null at first, which `kubectl wait` takes for an error.
    for state in ("jsonpath={.status.acceptedNames.kind}=Certificate", "condition=Established"):
        cluster.wait(DEFINITION, state, namespace="default")
    yield cluster
    cluster.kubectl("delete", DEFINITION, "--wait=false")


def apply(cluster: Cluster, certificates: Sequence[Object]) -> str:
    """Apply as kubectl and Helm do, with unknown fields refused, without storing it."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": certificates})
    return cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", "-", input=text)


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
    spec = certificates[0]["spec"]
    for wrong in (
        {"privateKey": {"algorithm": "EC"}},
        {"usages": ["serving"]},
        {"issuer": "rota"},
        {"issuerRef": None},
    ):
        with pytest.raises(KubectlFailed, match=next(iter(wrong))):
            apply(with_definitions, [certificates[0] | {"spec": spec | wrong}])
