"""The operator in a pod: a ConsumerGroup is applied, adopted, shown as it is, and leaves nothing behind."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.cluster import Cluster, images
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import ENRICHER, GROUP, SHOP, orders

# The first of them starts the cluster, loads four images and waits for Rota's parts.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

READY_WITHIN_S = 120
PARTITIONS, REPLICAS = 12, 3
OWN_GRACE_S = 5


class Applied(NamedTuple):
    """The example, applied to a namespace."""

    cluster: Cluster
    namespace: str
    manifests: list[Manifest]

    def get(self, resource: str) -> Any:  # noqa: ANN401  as it is stored
        return self.cluster.get(resource, namespace=self.namespace)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace, input=input)


@pytest.fixture(scope="module")
def applied(rota_cluster: Cluster) -> Iterator[Applied]:
    """The example runs."""
    namespace = "orders-of-operator"
    rota_cluster.kubectl("create", "namespace", namespace)
    rota_cluster.wait("serviceaccount/default", "create", namespace=namespace)
    manifests = orders(namespace, images.part("cli").name)
    rota_cluster.apply(manifests, namespace=namespace)
    example = Applied(rota_cluster, namespace, manifests)
    for condition in (f"jsonpath={{.status.members}}={REPLICAS}", "condition=Ready"):
        rota_cluster.wait(f"consumergroup/{GROUP}", condition, namespace=namespace, within_s=READY_WITHIN_S)
    # Pods from before the adoption may still be there.
    rota_cluster.kubectl(
        "rollout", "status", f"deployment/{ENRICHER}", "-n", namespace, f"--timeout={READY_WITHIN_S}s"
    )
    yield example
    rota_cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def columns(table: str) -> dict[str, str]:
    """The only row of kubectl's table, by the names of its columns; a value that is unknown is empty."""
    head, row = table.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", head)]
    return {
        head[start:end].strip(): row[start:end].strip()
        for start, end in zip(starts, [*starts[1:], None], strict=True)
    }


def test_a_group_is_ready_when_every_partition_has_an_owner_and_one_line_shows_it(applied: Applied) -> None:
    status = applied.get(f"consumergroup/{GROUP}")["status"]
    assert (status["members"], status["partitions"], status["unownedPartitions"]) == (REPLICAS, PARTITIONS, 0)
    shown = columns(applied.kubectl("get", "cg"))
    assert (shown["MEMBERS"], shown["PARTITIONS"], shown["READY"]) == (str(REPLICAS), str(PARTITIONS), "True")


def test_each_pod_of_the_workload_has_a_sidecar_that_is_ready(applied: Applied) -> None:
    pods = applied.get("pods")["items"]
    members = [each for each in pods if each["metadata"]["labels"]["app"] == ENRICHER]
    running = [each for each in members if "deletionTimestamp" not in each["metadata"]]
    assert len(running) == REPLICAS
    for pod in running:
        [sidecar] = pod["spec"]["initContainers"]
        assert sidecar["restartPolicy"] == "Always"
        [state] = pod["status"]["initContainerStatuses"]
        assert (state["name"], state["ready"], state["restartCount"]) == (sidecar["name"], True, 0)


def test_the_settings_lie_in_a_config_map_that_goes_with_the_group(applied: Applied) -> None:
    group = applied.get(f"consumergroup/{GROUP}")
    config_map = applied.get(f"configmap/rota-{GROUP}")
    [owner] = config_map["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ConsumerGroup", group["metadata"]["uid"])
    assert json.loads(config_map["data"]["settings.json"])["topics"] == group["spec"]["topics"]


def test_applying_the_same_again_changes_nothing_and_rolls_no_pod(applied: Applied) -> None:
    before = {name: applied.get(f"deployment/{name}")["metadata"]["generation"] for name in (ENRICHER, SHOP)}
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": applied.manifests})
    assert applied.kubectl("diff", "--filename", "-", input=document) == ""
    applied.cluster.apply(applied.manifests, namespace=applied.namespace)
    after = {name: applied.get(f"deployment/{name}")["metadata"]["generation"] for name in (ENRICHER, SHOP)}
    assert after == before


def test_a_workload_that_its_owner_replaced_is_adopted_again_as_before(applied: Applied) -> None:
    target = f"deployment/{ENRICHER}"
    adopted = applied.get(target)["spec"]["template"]
    [own] = [
        each
        for each in applied.manifests
        if each["metadata"]["name"] == ENRICHER and "template" in each["spec"]
    ]
    own = {**own, "spec": {**own["spec"], "replicas": REPLICAS}}
    applied.kubectl("replace", "--filename", "-", input=json.dumps(own))
    sidecar = "jsonpath={.spec.template.spec.initContainers[0].name}=rota-sidecar"
    applied.cluster.wait(target, sidecar, namespace=applied.namespace)
    assert applied.get(target)["spec"]["template"] == adopted


def test_deleting_a_group_gives_its_workload_back_as_its_owner_applied_it(
    rota_cluster: Cluster, namespace: str
) -> None:
    manifests = orders(namespace, images.part("cli").name)
    config_map, group, enricher, _ = manifests
    # Shorter than a drain: the operator raises it meanwhile.
    enricher["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = OWN_GRACE_S
    rota_cluster.apply([config_map, enricher], namespace=namespace)
    target = f"deployment/{ENRICHER}"
    owners = rota_cluster.get(target, namespace=namespace)
    rota_cluster.apply([group], namespace=namespace)
    rota_cluster.wait(target, f"jsonpath={{.spec.replicas}}={REPLICAS}", namespace=namespace)
    adopted = rota_cluster.get(target, namespace=namespace)["spec"]["template"]["spec"]
    assert [each["name"] for each in adopted["initContainers"]] == ["rota-sidecar"]
    assert adopted["terminationGracePeriodSeconds"] > OWN_GRACE_S

    rota_cluster.kubectl("delete", "--namespace", namespace, f"consumergroup/{GROUP}", "--timeout=60s")
    released = rota_cluster.get(target, namespace=namespace)
    assert released["spec"]["template"] == owners["spec"]["template"]
    assert released["metadata"].get("labels") == owners["metadata"].get("labels")
    with pytest.raises(KubectlFailed, match="not found"):
        rota_cluster.get(f"configmap/rota-{GROUP}", namespace=namespace)
