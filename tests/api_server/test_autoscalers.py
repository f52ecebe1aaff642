"""
Autoscalers scale a ConsumerGroup through its scale subresource, and one that scales the workload itself is named. No pod runs here.

The HorizontalPodAutoscalers are the cluster's own controller. Without a metrics server it keeps a target between the minimum and
the maximum, which is all that is needed here: the rest of its work is not Rota's.
"""

import json
from typing import Any

import pytest

from tests.api_server.adopting import Shop, open_shop, workload
from tests.support.cluster import Cluster
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest
from tests.support.coordinator import Coordinator

pytestmark = pytest.mark.api_server

API_VERSION = "rota.dev/v1alpha1"
MINIMUM, MAXIMUM = 3, 5
# By KEDA's names.
TRIGGER = {"type": "External", "external": {
    "metric": {"name": "s0-kafka-orders", "selector": {"matchLabels": {"scaledobject.keda.sh/name": "on-keda"}}},
    "target": {"type": "AverageValue", "averageValue": "50"},
}}  # fmt: skip
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def autoscaler(name: str, kind: str, target: str, metric: Manifest = CPU, **labels: str) -> Manifest:
    api_version = API_VERSION if kind == "ConsumerGroup" else "apps/v1"
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": target},
            "minReplicas": MINIMUM,
            "maxReplicas": MAXIMUM,
            "metrics": [metric],
        },
    }


@pytest.fixture(scope="module")
def autoscaled(operated: Cluster, outside_coordinator: Coordinator, namespaces: list[str]) -> Shop:
    """Groups with autoscalers of their own or of their workloads; they are adopted side by side."""
    shop = open_shop(operated, outside_coordinator.address, namespaces)
    # An autoscaler has been there before its workload's group came.
    foreign = workload("Deployment", "foreign", replicas=1)
    shop.apply(foreign, autoscaler("mine", "Deployment", "foreign"))
    targets = [
        workload("Deployment", "below"),
        workload("StatefulSet", "above"),
        workload("Deployment", "on-keda"),
    ]
    shop.apply(*targets)
    shop.group("below", "Deployment", "below", replicas=1)
    shop.group("above", "StatefulSet", "above", replicas=9)
    shop.group("on-keda", "Deployment", "on-keda", replicas=0)
    shop.apply(*(autoscaler(name, "ConsumerGroup", name) for name in ("below", "above")))
    shop.wait("deployment/foreign", f"jsonpath={{.spec.replicas}}={MINIMUM}")
    shop.group("foreign", "Deployment", "foreign", replicas=1)
    shop.wait_adopted(*(f"{kind}/{name}" for kind, name in (
        ("deployment", "below"), ("statefulset", "above"), ("deployment", "on-keda"), ("deployment", "foreign"),
    )))  # fmt: skip
    return shop


@pytest.mark.parametrize(
    ("name", "target", "replicas"), [("below", "deployment", MINIMUM), ("above", "statefulset", MAXIMUM)]
)
def test_an_autoscaler_of_the_group_scales_its_workload_up_and_down(
    autoscaled: Shop, name: str, target: str, replicas: int
) -> None:
    autoscaled.wait(f"hpa/{name}", 'jsonpath={.status.conditions[?(@.type=="AbleToScale")].status}=True')
    autoscaled.wait(f"{target}/{name}", f"jsonpath={{.spec.replicas}}={replicas}")
    autoscaled.wait(f"cg/{name}", f"jsonpath={{.status.desiredReplicas}}={replicas}")
    assert autoscaled.get(f"cg/{name}")["spec"]["replicas"] == replicas
    # It is the group's, so nothing is wrong with it.
    assert autoscaled.condition(name, "ScalingActive")["reason"] == "AutoscalingDisabled"


def test_an_autoscaler_of_the_workload_itself_is_named_and_its_number_stays(autoscaled: Shop) -> None:
    reason = '{.status.conditions[?(@.type=="ScalingActive")].reason}'
    autoscaled.wait("cg/foreign", f"jsonpath={reason}=ForeignAutoscaler")
    found = autoscaled.condition("foreign", "ScalingActive")
    assert found["status"] == "False"
    assert "HorizontalPodAutoscaler mine scales Deployment foreign" in found["message"]
    # Another decision on the same group, which asks for another number than the autoscaler's.
    autoscaled.group("foreign", "Deployment", "foreign", replicas=2)
    generation = autoscaled.get("cg/foreign")["metadata"]["generation"]
    autoscaled.wait("cg/foreign", f"jsonpath={{.status.observedGeneration}}={generation}")
    assert autoscaled.get("deployment/foreign")["spec"]["replicas"] == MINIMUM


class ScaleClient:
    """The scale subresource of a ConsumerGroup as client-go's scale client uses it, in raw requests of kubectl."""

    def __init__(self, shop: Shop, name: str) -> None:
        self._shop = shop
        self._path = f"/apis/{API_VERSION}/namespaces/{shop.namespace}/consumergroups/{name}/scale"

    def get(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._shop.cluster.kubectl("get", "--raw", self._path))
        return found

    def update(self, replicas: int) -> None:
        scale = self.get()
        scale["spec"]["replicas"] = replicas
        # Of any version: the operator may have written the status since.
        del scale["metadata"]["resourceVersion"]
        body = json.dumps(scale)
        self._shop.cluster.kubectl("replace", "--raw", self._path, "--filename", "-", input=body)


def test_keda_finds_the_group_scalable_and_scales_it_from_zero_and_back(autoscaled: Shop) -> None:
    """
    Make the requests that KEDA makes for a ScaledObject whose scaleTargetRef is a ConsumerGroup, in their order.

    Building KEDA takes ten minutes, so its requests are reproduced; KEDA 2.21 itself, with its metrics adapter and a metric of HTTP,
    took such a group from 0 to 1, 5, 2 and back to 0 when this was written. It resolves the kind by discovery, GETs the scale subresource and refuses the ScaledObject if there is none (checkTargetResourceIsScalable), creates a
    HorizontalPodAutoscaler keda-hpa-NAME with an external metric, and changes the number from and to zero by GET and PUT of the
    scale (the scale executor); from one on the HorizontalPodAutoscaler acts.
    """
    kubectl = autoscaled.cluster.kubectl
    resources = json.loads(kubectl("get", "--raw", f"/apis/{API_VERSION}"))["resources"]
    [served] = [each for each in resources if each["name"] == "consumergroups/scale"]
    assert (served["group"], served["version"], served["kind"]) == ("autoscaling", "v1", "Scale")
    assert {"get", "update", "patch"} <= set(served["verbs"])

    autoscaled.wait("cg/on-keda", "jsonpath={.status.selector}")
    scale = ScaleClient(autoscaled, "on-keda")
    found = scale.get()
    assert found["spec"].get("replicas", 0) == 0
    assert (found["status"]["replicas"], found["status"]["selector"]) == (0, "app=on-keda")
    autoscaled.apply(
        autoscaler(
            "keda-hpa-on-keda", "ConsumerGroup", "on-keda", TRIGGER,
            **{"app.kubernetes.io/managed-by": "keda-operator", "scaledobject.keda.sh/name": "on-keda"},
        )
    )  # fmt: skip
    # At zero it leaves the target to KEDA.
    autoscaled.wait(
        "hpa/keda-hpa-on-keda",
        'jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}=ScalingDisabled',
    )
    scale.update(1)
    autoscaled.wait("deployment/on-keda", f"jsonpath={{.spec.replicas}}={MINIMUM}")
    autoscaled.wait("cg/on-keda", f"jsonpath={{.status.replicas}}={MINIMUM}")
    assert scale.get()["status"]["replicas"] == MINIMUM
    scale.update(0)
    autoscaled.wait("deployment/on-keda", "jsonpath={.spec.replicas}=0")
    autoscaled.wait("cg/on-keda", "jsonpath={.status.desiredReplicas}=0")


def test_without_replicas_in_the_spec_a_scale_has_no_number_until_one_is_set(autoscaled: Shop) -> None:
    """Autoscalers need `spec.replicas` once; the guide says so."""
    autoscaled.apply(workload("Deployment", "own-number", replicas=1))
    autoscaled.group("own-number", "Deployment", "own-number")
    scale = ScaleClient(autoscaled, "own-number")
    with pytest.raises(KubectlFailed, match=r'the spec replicas field "\.spec\.replicas" does not exist'):
        scale.get()
    autoscaled.kubectl("scale", "cg/own-number", "--replicas=2")
    assert scale.get()["spec"]["replicas"] == 2
    autoscaled.wait("deployment/own-number", "jsonpath={.spec.replicas}=2")
