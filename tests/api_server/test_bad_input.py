"""
Bad input: a ConsumerGroup that is wrong, or names something wrong, is refused by the API server, or a condition says why.

The operator of all tests here is one process; it ends in order, without an internal error in its log. No pod runs.
"""

import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.spec.conditions import Reason
from rota_operator.status.status import REFUSING
from tests.api_server.adopting import KINDS, WITHIN_S, Shop, consumer_group, open_shop, ready_of, workload
from tests.api_server.drawn_manifests import draw_specs, manifests_of
from tests.api_server.pod_sidecars import distribution, start_sidecar
from tests.operator.reconcile.test_any_manifest import OF_THE_SPEC
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.cluster import Cluster
from tests.support.cluster.bulk import create_all
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import RESTRICTED
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.processes import steady_ms, wait_for

pytestmark = pytest.mark.api_server

DRAWN, DRAWN_IN_SOAK = 50, 2_000
SETTLED_WITHIN_S, SETTLED_WITHIN_IN_SOAK_S = 120, 1_200
PATH = re.compile(r"\b(spec|metadata)\b")
# An assignment strategy that a distribution brings.
ACME = """
class Acme:
    name = "acme"
    cooperative = True

    def assign(self, group):
        return {}
"""
NO_PODS = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-pods"},
    "spec": {"hard": {"pods": "0"}},
}
# An application that fulfils the Pod Security level restricted.
RESTRICTED_POD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{
        "name": "app", "image": "app:1",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }],
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            {"kind": "DaemonSet", "name": "enricher"},
            r'spec.scaleTargetRef.kind: Unsupported value: "DaemonSet"',
        ),
        (
            {"apiVersion": "argoproj.io/v1alpha1", "kind": "Deployment", "name": "enricher"},
            r'spec.scaleTargetRef.apiVersion: Unsupported value: "argoproj.io/v1alpha1"',
        ),
    ],
    ids=["kind", "api-version"],
)
def test_a_target_of_another_kind_is_refused_by_the_api_server(
    shop: Shop, target: dict[str, str], said: str
) -> None:
    group = consumer_group("orders", shop.coordinator, "Deployment", "enricher", scaleTargetRef=target)
    with pytest.raises(KubectlFailed, match=re.escape(said)):
        shop.apply(group)


def test_a_group_id_that_an_older_group_has_is_refused_and_free_again_after_it(shop: Shop) -> None:
    group_id = f"{shop.namespace}.payments"
    shop.apply(workload("Deployment", "first"), workload("Deployment", "second"))
    shop.group("older", "Deployment", "first", groupId=group_id)
    shop.wait_adopted("deployment/first")
    shop.wait_younger_than("older")
    shop.group("younger", "Deployment", "second", groupId=group_id)
    said = shop.wait_ready_reason("younger", "GroupIdClaimed")
    assert said.startswith(
        f"spec.groupId: group {group_id} belongs to the older ConsumerGroup {shop.namespace}/older"
    )
    assert "initContainers" not in shop.get("deployment/second")["spec"]["template"]["spec"]
    shop.delete_groups("older")
    shop.wait_adopted("deployment/second")


@pytest.fixture(scope="module")
def with_quota(operated: Cluster, outside_coordinator: Coordinator, namespaces: list[str]) -> Shop:
    """A namespace without room for a pod."""
    shop = open_shop(operated, outside_coordinator.address, namespaces)
    shop.apply(NO_PODS)
    found = [workload(kind, kind.lower(), replicas=1) for kind in KINDS]
    shop.apply(*found)
    shop.groups_of(found)
    return shop


@pytest.fixture(scope="module")
def restricted(operated: Cluster, outside_coordinator: Coordinator, namespaces: list[str]) -> Shop:
    """A namespace with the Pod Security level restricted; the workloads named fit-… fulfil it."""
    shop = open_shop(operated, outside_coordinator.address, namespaces, RESTRICTED)
    found = [workload(kind, kind.lower(), replicas=1) for kind in KINDS]
    found += [workload(kind, f"fit-{kind.lower()}", **RESTRICTED_POD) for kind in KINDS]
    shop.apply(*found)
    shop.groups_of(found)
    return shop


@pytest.mark.parametrize("kind", KINDS)
def test_a_quota_that_refuses_the_pods_is_quoted(with_quota: Shop, kind: str) -> None:
    said = with_quota.wait_ready_reason(kind.lower(), "PodsRefused")
    assert "is forbidden: exceeded quota: no-pods, requested: pods=1, used: pods=0, limited: pods=0" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_security_level_that_refuses_the_pods_is_quoted(restricted: Shop, kind: str) -> None:
    said = restricted.wait_ready_reason(kind.lower(), "PodsRefused")
    assert 'violates PodSecurity "restricted:latest"' in said
    # The application is the reason, not the sidecar.
    assert '"app"' in said
    assert "rota-sidecar" not in said


@pytest.mark.parametrize("kind", KINDS)
def test_the_sidecar_fulfils_the_pod_security_level_restricted(restricted: Shop, kind: str) -> None:
    name = f"fit-{kind.lower()}"
    restricted.wait_adopted(f"{kind.lower()}/{name}")
    # Now, so that there is no pod from before the adoption.
    restricted.kubectl("scale", f"{kind.lower()}/{name}", "--replicas=1")
    restricted.wait(f"cg/{name}", "jsonpath={.status.replicas}=1")
    restricted.wait_ready_reason(name, "NoMembers")


def test_sidecars_that_are_older_or_lack_a_strategy_are_named(
    shop: Shop, operator_process: OperatorProcess, outside_coordinator: Coordinator, tmp_path: Path
) -> None:
    target = workload("Deployment", "enricher")
    shop.apply(target)
    shop.group("orders", "Deployment", "enricher")
    shop.wait_adopted("deployment/enricher")
    # Now, so that there are no pods from before the adoption.
    shop.kubectl("scale", "deployment/enricher", "--replicas=2")
    shop.wait("cg/orders", "jsonpath={.status.replicas}=2")
    capable, old = shop.get("pods")["items"]
    acme = distribution(
        tmp_path / "acme", "acme", "1.0", **{"entry_points.txt": "[rota.assignors]\nacme = acme:Acme\n"}
    )
    (acme / "acme.py").write_text(ACME)
    former = distribution(tmp_path / "former", "rota_sidecar", "0.0.1")
    folders = [tmp_path / "capable-pod", tmp_path / "old-pod"]
    for folder in folders:
        folder.mkdir()
    sidecars = [
        start_sidecar(shop, capable, operator_process.fleet, folders[0], acme),
        start_sidecar(shop, old, operator_process.fleet, folders[1], former),
    ]
    old_name = old["metadata"]["name"]

    def says(part: str) -> bool:
        for each in sidecars:
            each.check_running()
        return part in shop.condition("orders", "Ready")["message"]

    with attached(*(App(folder, f"unix:{folder}/app.sock") for folder in folders)):
        wait_for("a remark", partial(says, f"sidecars: {old_name} 0.0.1; set"), within_s=WITHIN_S, poll_s=0.5)
        shop.group("orders", "Deployment", "enricher", assignment={"strategy": "acme"})
        refusal = f"{old_name}: spec.assignment.strategy: unknown strategy acme"
        shop.wait_ready_reason("orders", "SettingsRefused")
        # The other one may be named first.
        wait_for("the refusal is quoted", partial(says, refusal), within_s=WITHIN_S, poll_s=0.5)
        # Named until it reports that it offers the new one too.
        wait_for(
            "the other one is not named",
            lambda: not says(capable["metadata"]["name"]),
            within_s=WITHIN_S,
            poll_s=0.5,
        )
        # The other one has offered both strategies, so the group goes on.
        assert not any(each.exit_code for each in sidecars)
        shop.wait("cg/orders", "jsonpath={.status.members}=2")
        # Both have it.
        shop.group("orders", "Deployment", "enricher", assignment={"strategy": "range"})
        wait_for(
            "both accept it",
            lambda: not says(refusal) and shop.condition("orders", "Ready")["reason"] != "SettingsRefused",
            within_s=WITHIN_S,
            poll_s=0.5,
        )
        group_id = f"{shop.namespace}.orders"
        wait_for(
            "the group uses it",
            lambda: outside_coordinator.strategy_of(group_id) == "range",
            within_s=WITHIN_S,
            poll_s=0.2,
        )
        for each in sidecars:
            each.stop()


def runs(group: Any, adopted: set[str]) -> bool:  # noqa: ANN401  an object as it is stored
    """Return whether a group's plan was performed."""
    return group["metadata"]["uid"] in adopted


def is_refused(group: Any) -> bool:  # noqa: ANN401  an object as it is stored
    """Return whether the condition says why the spec is not followed."""
    return ready_of(group).get("reason") in {*REFUSING, Reason.TARGET_NOT_FOUND}


@pytest.fixture
def drawing_shop(operated: Cluster, outside_coordinator: Coordinator, namespaces: list[str]) -> Shop:
    """A namespace without other groups, and without room for a pod."""
    shop = open_shop(operated, outside_coordinator.address, namespaces)
    shop.apply(NO_PODS)
    return shop


class Drawn:
    """The namespace of the drawn manifests."""

    def __init__(self, shop: Shop, operator: OperatorProcess) -> None:
        self._shop = shop
        self._operator = operator
        self.groups: list[Any] = []
        # Uids of groups with a workload.
        self.adopted: set[str] = set()

    def have_settled(self) -> bool:
        """Read everything; return whether each group is refused, or has its workload."""
        self._operator.check()
        self.groups = self._shop.get("consumergroups")["items"]
        workloads = (
            each for kind in ("deployments", "statefulsets") for each in self._shop.get(kind)["items"]
        )
        self.adopted = {each["metadata"].get("labels", {}).get(CLAIM_LABEL, "") for each in workloads}
        return all(ready_of(each) and (is_refused(each) or runs(each, self.adopted)) for each in self.groups)


def delete_drawn(shop: Shop, groups: list[Any], within_s: int) -> None:
    """Delete all groups; those that are to be deleted at their coordinators would wait for coordinators that do not exist."""
    names = [each["metadata"]["name"] for each in groups if each["spec"]["deletionPolicy"] == "DeleteGroup"]
    if names:
        policy = json.dumps({"spec": {"deletionPolicy": "RetainOffsets"}})
        shop.kubectl("patch", "consumergroups", *names, "--type=merge", "--patch", policy)
    shop.kubectl("delete", "consumergroups", "--all", f"--timeout={within_s}s")


@pytest.mark.soak("manifests")
@pytest.mark.timeout(2 * SETTLED_WITHIN_IN_SOAK_S + 60)
def test_drawn_manifests_end_in_a_refusal_with_its_path_or_in_a_plan_that_runs(
    drawing_shop: Shop,
    operator_process: OperatorProcess,
    seed: int,
    in_soak: bool,
    report: list[str],
    counters: Counter[str],
) -> None:
    shop = drawing_shop
    count, within_s = (DRAWN_IN_SOAK, SETTLED_WITHIN_IN_SOAK_S) if in_soak else (DRAWN, SETTLED_WITHIN_S)
    pid = operator_process.pid
    workloads, groups = manifests_of(draw_specs(count, seed), shop.coordinator, seed)
    kubeconfig = shop.cluster.kubeconfig
    began_ms = steady_ms()
    assert create_all(kubeconfig, shop.namespace, workloads) == {}
    refusals = create_all(kubeconfig, shop.namespace, groups)
    drawn = Drawn(shop, operator_process)
    # Each poll reads all groups and workloads.
    wait_for("all groups are refused or adopted", drawn.have_settled, within_s=within_s, poll_s=1)
    took_s = (steady_ms() - began_ms) / 1000

    assert len(refusals) + len(drawn.groups) == count
    wrong = [each for each in refusals.values() if each.status >= 500 or not PATH.search(each.message)]
    assert wrong == []
    reasons: Counter[str] = Counter()
    for group in drawn.groups:
        found = ready_of(group)
        reasons["adopted" if runs(group, drawn.adopted) else found["reason"]] += 1
        assert found["status"] in ("False", "Unknown"), group
        assert found["reason"] in set(Reason), group
        if found["reason"] in {
            *OF_THE_SPEC,
            Reason.TARGET_CLAIMED,
            Reason.GROUP_ID_CLAIMED,
            Reason.REQUEST_REFUSED,
        }:
            assert PATH.search(found["message"]), group
    assert operator_process.pid == pid
    outcomes = {"refused by the API server": len(refusals), **dict(reasons.most_common())}
    counters.update({f"manifests: {name}": number for name, number in outcomes.items()})
    listed = ", ".join(f"{number} {name}" for name, number in outcomes.items())
    report.append(f"{count} drawn manifests settled in {took_s:.0f} s: {listed}")
    delete_drawn(shop, drawn.groups, within_s)
    # Else the plan that runs is not tested.
    assert reasons["adopted"] >= count // 20


@pytest.mark.parametrize("kind", KINDS)
def test_kubernetes_refuses_a_deadline_of_pods_that_would_cut_a_drain_short(shop: Shop, kind: str) -> None:
    manifest = workload(kind, "enricher", activeDeadlineSeconds=60)
    with pytest.raises(KubectlFailed, match="activeDeadlineSeconds"):
        shop.apply(manifest, flags=("--dry-run=server",))
