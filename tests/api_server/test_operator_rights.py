"""An operator whose service account lacks a right names the verb in the condition of each group that needs it. No pod runs here."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.api_server.adopting import Shop, delete_all_groups, open_shop, workload
from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.cluster.rota_manifests import RULES
from tests.support.coordinator import Coordinator

pytestmark = pytest.mark.api_server

ACCOUNT = "operator"
RBAC = "rbac.authorization.k8s.io"
# Verb and resource.
Right = tuple[str, str]
# By the ConsumerGroup that needs it.
WRITES: dict[str, Right] = {
    "adopted": ("patch", "deployments"),
    "scaled": ("patch", "statefulsets/scale"),
    "with-budget": ("create", "poddisruptionbudgets"),
}
READ: Right = ("list", "horizontalpodautoscalers")


def rights(shop: Shop, lacking: Collection[Right], account_namespace: str) -> list[Manifest]:
    """A role with all rights of the operator but some, and its binding."""
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": [each for each in verbs if (each, resource) not in lacking]}
        for group, resources, verbs in RULES
        for resource in resources
    ]  # fmt: skip
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": ACCOUNT}}
    return [
        {**role, "rules": [each for each in rules if each["verbs"]]},
        {
            **role,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": account_namespace}],
        },
    ]


def kubeconfig_of(shop: Shop, folder: Path) -> Path:
    """Credentials of the service account."""
    config = json.loads(shop.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": shop.kubectl("create", "token", ACCOUNT).strip()}
    file = folder / "kubeconfig-of-account"
    file.write_text(json.dumps(config))
    return file


@pytest.fixture(scope="module")
def shops(
    api_server: Cluster, outside_coordinator: Coordinator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Shop, Shop]]:
    """A namespace in which rights to write are missing, and one in which a right to read is."""
    namespaces: list[str] = []
    writes, reads = (open_shop(api_server, outside_coordinator.address, namespaces) for _ in range(2))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    writes.apply(account, *rights(writes, WRITES.values(), writes.namespace))
    reads.apply(*rights(reads, [READ], writes.namespace))
    targets = [
        workload("Deployment", "adopted"),
        workload("StatefulSet", "scaled"),
        workload("StatefulSet", "with-budget"),
    ]
    writes.apply(*targets)
    reads.apply(workload("Deployment", "unread"))
    folder = tmp_path_factory.mktemp("rights")
    flags = (f"--namespace={each}" for each in namespaces)
    operator = OperatorProcess(folder, kubeconfig_of(writes, folder), *flags)
    operator.start()
    writes.group("adopted", "Deployment", "adopted")
    writes.group("scaled", "StatefulSet", "scaled", replicas=2)
    writes.group("with-budget", "StatefulSet", "with-budget", podDisruptionBudget={"maxUnavailable": 1})
    reads.group("unread", "Deployment", "unread")
    yield writes, reads
    # Everything is undone with the right that is missing for it.
    writes.apply(*rights(writes, (), writes.namespace))
    delete_all_groups(api_server)
    operator.stop()
    api_server.kubectl("delete", "namespace", *namespaces, "--wait=false")


@pytest.mark.parametrize("group", WRITES)
def test_a_right_to_write_that_the_operator_lacks_is_named(shops: tuple[Shop, Shop], group: str) -> None:
    verb, resource = WRITES[group]
    said = shops[0].wait_ready_reason(group, "Forbidden")
    assert f"the operator may not {verb} {resource} (" in said
    # Remarks may follow.
    assert "); grant the verb to its service account" in said


def test_a_right_to_read_that_the_operator_lacks_is_named_and_granting_it_is_enough(
    shops: tuple[Shop, Shop],
) -> None:
    shop = shops[1]
    verb, resource = READ
    said = shop.wait_ready_reason("unread", "Forbidden")
    assert f"the operator may not {verb} {resource} (" in said
    shop.apply(*rights(shop, (), shops[0].namespace))
    shop.wait_adopted("deployment/unread")
    shop.wait_ready_reason("unread", "ScaledToZero")
