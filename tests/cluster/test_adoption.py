"""A workload is adopted, stays its owner's, and is given back as its owner has applied it. No pod runs here."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from tests.cluster.adopting import (
    KINDS,
    SIDECAR,
    WITHIN_S,
    Shop,
    as_list,
    owners_part,
    resource_of,
    workload,
)
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest
from tests.support.processes import wait_for

pytestmark = pytest.mark.cluster

SERVER_SIDE = ("--server-side", "--field-manager=owner")
# Rota raises a grace period that is too short, so an owner who applies it on the server's side has to insist on it.
INSISTING = (*SERVER_SIDE, "--force-conflicts")
# Shorter than a drain takes.
SHORT_GRACE_S = 5


def workloads(role: str, version: str = "1") -> list[Manifest]:
    """Of each kind one with the default grace period, and one with a short one."""
    return [
        workload(kind, f"{role}-{kind.lower()}-{name}", version=version, **pod)
        for kind in KINDS
        for name, pod in (("default", {}), ("short", {"terminationGracePeriodSeconds": SHORT_GRACE_S}))
    ]


def apply_change(shop: Shop, manifests: Sequence[Manifest]) -> None:
    shop.apply(*manifests)


def apply_change_server_side(shop: Shop, manifests: Sequence[Manifest]) -> None:
    shop.apply(*manifests, flags=INSISTING)


def replace(shop: Shop, manifests: Sequence[Manifest]) -> None:
    shop.kubectl("replace", "--filename", "-", input=as_list(manifests))


def scale(shop: Shop, manifests: Sequence[Manifest]) -> None:
    shop.kubectl("scale", *map(resource_of, manifests), "--replicas=2")


def restart(shop: Shop, manifests: Sequence[Manifest]) -> None:
    shop.kubectl("rollout", "restart", *map(resource_of, manifests))


@pytest.mark.parametrize(
    ("created", "change"),
    [
        ((), apply_change),
        (SERVER_SIDE, apply_change_server_side),
        ((), replace),
        ((), scale),
        (SERVER_SIDE, restart),
    ],
    ids=lambda value: getattr(value, "__name__", None) or ("server-side" if value else "client-side"),
)
def test_a_released_workload_is_what_its_owner_made_of_it_meanwhile(
    shop: Shop, created: Sequence[str], change: Callable[[Shop, Sequence[Manifest]], None]
) -> None:
    # A twin is treated alike by its owner, and never adopted.
    adopted, twins = workloads("adopted"), workloads("twin")
    shop.apply(*adopted, *twins, flags=created)
    shop.groups_of(adopted)
    names = [resource_of(each) for each in adopted]
    shop.wait_adopted(*names)
    change(shop, [*workloads("adopted", version="2"), *workloads("twin", version="2")])
    shop.wait_adopted(*names)
    shop.delete_groups(*(each["metadata"]["name"] for each in adopted))
    found = [owners_part(each) for each in shop.get_all([*adopted, *twins])]
    assert found[: len(adopted)] == found[len(adopted) :]


def test_applying_the_same_again_changes_nothing(shop: Shop) -> None:
    # Where an owner's grace period is too short for the drain, his manifest and the cluster differ in it.
    client_side = [workload(kind, f"c-{kind.lower()}") for kind in KINDS]
    server_side = [workload(kind, f"s-{kind.lower()}") for kind in KINDS]
    shop.apply(*client_side)
    shop.apply(*server_side, flags=SERVER_SIDE)
    both = [*client_side, *server_side]
    shop.groups_of(both)
    shop.wait_adopted(*map(resource_of, both))
    before = shop.get_all(both)

    assert shop.kubectl("diff", "--filename", "-", input=as_list(client_side)) == ""
    assert shop.kubectl("diff", *SERVER_SIDE, "--filename", "-", input=as_list(server_side)) == ""
    shop.apply(*client_side)
    shop.apply(*server_side, flags=SERVER_SIDE)
    shop.groups_of(both)
    after = shop.get_all(both)
    assert [each["metadata"]["generation"] for each in after] == [
        each["metadata"]["generation"] for each in before
    ]
    assert [each["spec"] for each in after] == [each["spec"] for each in before]


def test_an_owner_whose_grace_period_is_too_short_is_named_with_its_remedy(shop: Shop) -> None:
    short = [workload(kind, kind.lower(), terminationGracePeriodSeconds=SHORT_GRACE_S) for kind in KINDS]
    names = {each["metadata"]["name"]: resource_of(each) for each in short}
    shop.apply(*short)
    shop.groups_of(short)
    shop.wait_adopted(*names.values())
    raised_s = shop.get_all(short)[0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    raised = f"jsonpath={{.spec.template.spec.terminationGracePeriodSeconds}}={raised_s}"

    def says(group: str, part: str) -> bool:
        return part in shop.condition(group, "Ready")["message"]

    def says_nothing_of(group: str, word: str) -> bool:
        return not says(group, word)

    for group, target in names.items():
        shop.wait(target, raised)
        shop.wait_ready_reason(group, "ScaledToZero")
        remark = f"GracePeriodRaised: terminationGracePeriodSeconds {SHORT_GRACE_S} of"
        wait_for("a remark", partial(says, group, remark), within_s=WITHIN_S, poll_s=0.1)
        assert says(group, f"which restarts the pods; set it to {raised_s}")
    # Applied again, it is too short for a moment.
    shop.apply(*short)
    for target in names.values():
        shop.wait(target, raised)

    shop.apply(*(workload(kind, kind.lower(), terminationGracePeriodSeconds=raised_s) for kind in KINDS))
    for group, target in names.items():
        # The field is the owner's now, without another value in between.
        shop.wait(target, "jsonpath={.metadata.managedFields[?(@.manager=='rota-restored')].operation}=Apply")
        wait_for(
            "no remark", partial(says_nothing_of, group, "GracePeriodRaised"), within_s=WITHIN_S, poll_s=0.1
        )
    shop.delete_groups(*names)
    after = [each["spec"]["template"]["spec"] for each in shop.get_all(short)]
    assert [each["terminationGracePeriodSeconds"] for each in after] == [raised_s] * len(KINDS)


def test_what_replace_takes_away_is_put_back_as_it_was(shop: Shop) -> None:
    manifest = workload("Deployment", "enricher")
    shop.apply(manifest)
    shop.group("orders", "Deployment", "enricher")
    shop.wait_adopted("deployment/enricher")
    before = shop.get("deployment/enricher")
    shop.kubectl("replace", "--filename", "-", input=as_list([manifest]))
    shop.wait_adopted("deployment/enricher")
    after = shop.get("deployment/enricher")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


@pytest.mark.parametrize(
    ("pod", "sidecar", "said"),
    [
        (
            {"containers": [{"name": SIDECAR, "image": "other:1"}]},
            {},
            f"Deployment enricher has a container named {SIDECAR}",
        ),
        (
            {"initContainers": [{"name": SIDECAR, "image": "other:1"}]},
            {},
            f"Deployment enricher has an init container named {SIDECAR}",
        ),
        (
            {},
            {"container": "nope"},
            "has no container nope; set spec.sidecar.container to one of: app, proxy",
        ),
        ({"hostNetwork": True}, {}, "uses the host network"),
    ],
    ids=["container-like-ours", "init-container-like-ours", "unknown-container", "host-network"],
)
def test_a_workload_that_cannot_be_adopted_is_left_alone_and_the_reason_said(
    shop: Shop, pod: dict[str, Any], sidecar: dict[str, str], said: str
) -> None:
    manifest = workload("Deployment", "enricher", **pod)
    shop.apply(manifest)
    before = shop.get("deployment/enricher")
    shop.group("orders", "Deployment", "enricher", sidecar=sidecar)
    assert said in shop.wait_ready_reason("orders", "InvalidTarget")
    assert owners_part(shop.get("deployment/enricher")) == owners_part(before)
    assert "finalizers" not in shop.get("consumergroup/orders")["metadata"]


def test_a_workload_that_is_created_after_its_group_is_adopted(shop: Shop) -> None:
    shop.group("orders", "StatefulSet", "enricher")
    said = shop.wait_ready_reason("orders", "TargetNotFound")
    assert said == "spec.scaleTargetRef: StatefulSet enricher does not exist; create it"
    shop.apply(workload("StatefulSet", "enricher"))
    shop.wait_adopted("statefulset/enricher")
    shop.wait_ready_reason("orders", "ScaledToZero")


def test_of_two_groups_the_older_has_the_workload_and_after_it_the_younger(shop: Shop) -> None:
    shop.apply(workload("Deployment", "enricher"))
    shop.group("older", "Deployment", "enricher")
    shop.wait_adopted("deployment/enricher")
    shop.wait_younger_than("older")
    shop.group("younger", "Deployment", "enricher")
    said = shop.wait_ready_reason("younger", "TargetClaimed")
    assert f"belongs to the older ConsumerGroup {shop.namespace}/older" in said
    younger = shop.get("consumergroup/younger")["metadata"]["uid"]
    assert shop.get("deployment/enricher")["metadata"]["labels"]["rota.dev/consumer-group"] == "older"

    shop.delete_groups("older")
    shop.wait("deployment/enricher", r"jsonpath={.metadata.labels.rota\.dev/consumer-group-uid}=" + younger)
    shop.wait_adopted("deployment/enricher")
    shop.wait_ready_reason("younger", "ScaledToZero")


def test_another_target_is_adopted_after_the_former_is_given_back(shop: Shop) -> None:
    former, next_one = workload("Deployment", "former"), workload("StatefulSet", "next-one")
    shop.apply(former, next_one)
    owners = shop.get("deployment/former")
    shop.group("orders", "Deployment", "former")
    shop.wait_adopted("deployment/former")
    shop.group("orders", "StatefulSet", "next-one")
    shop.wait_adopted("statefulset/next-one")
    # The release comes first, so it has been done by now.
    assert owners_part(shop.get("deployment/former")) == owners_part(owners)


def test_another_target_that_does_not_exist_leaves_the_former_to_its_owner(shop: Shop) -> None:
    shop.apply(workload("Deployment", "former"))
    owners = shop.get("deployment/former")
    shop.group("orders", "Deployment", "former")
    shop.wait_adopted("deployment/former")
    shop.group("orders", "Deployment", "nope")
    shop.wait_ready_reason("orders", "TargetNotFound")
    assert owners_part(shop.get("deployment/former")) == owners_part(owners)
    assert "finalizers" not in shop.get("consumergroup/orders")["metadata"]


def test_scaling_the_group_scales_its_workload(shop: Shop) -> None:
    manifests = [workload(kind, kind.lower()) for kind in KINDS]
    shop.apply(*manifests)
    shop.groups_of(manifests, replicas=0)
    shop.wait_adopted(*map(resource_of, manifests))
    shop.kubectl("scale", "cg/deployment", "cg/statefulset", "--replicas=3")
    for each in manifests:
        shop.wait(resource_of(each), "jsonpath={.spec.replicas}=3")
    shop.wait("cg/deployment", "jsonpath={.status.desiredReplicas}=3")


def test_a_disruption_budget_is_created_changed_and_deleted(shop: Shop) -> None:
    shop.apply(workload("Deployment", "enricher"))
    budget = "poddisruptionbudget/rota-orders"
    shop.group("orders", "Deployment", "enricher", podDisruptionBudget={"maxUnavailable": 1})
    shop.wait(budget, "create")
    found = shop.get(budget)
    assert found["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "enricher"}}}
    [owner] = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ConsumerGroup", "orders")

    shop.group("orders", "Deployment", "enricher", podDisruptionBudget={"maxUnavailable": "25%"})
    shop.wait(budget, "jsonpath={.spec.maxUnavailable}=25%")
    # What someone else deletes is created again.
    shop.kubectl("delete", budget)
    shop.wait(budget, "create")
    shop.group("orders", "Deployment", "enricher")
    shop.wait(budget, "delete")


def test_a_missing_secret_is_named_and_its_value_is_not(shop: Shop) -> None:
    login = {
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "userSecret": {"name": "login", "key": "username"},
            "passwordSecret": {"name": "login", "key": "password"},
        }
    }
    # One pod, which the kubelet has to see; it starts no container without the Secret.
    shop.apply(workload("Deployment", "enricher", replicas=1, nodeSelector={}))
    kafka = ["kafka.example.com:9092"]
    shop.group("orders", "Deployment", "enricher", auth=login, bootstrapServers=kafka)
    said = shop.wait_ready_reason("orders", "SecretNotFound")
    assert "missing Secrets or keys: login; create them in namespace" in said
    with pytest.raises(KubectlFailed, match="not found"):
        shop.get("secret/login")


def test_a_namespace_with_an_adopted_workload_can_be_deleted(shop: Shop, namespaces: list[str]) -> None:
    shop.apply(workload("Deployment", "enricher"))
    shop.group("orders", "Deployment", "enricher", podDisruptionBudget={"maxUnavailable": 1})
    shop.wait_adopted("deployment/enricher")
    shop.cluster.kubectl("delete", "namespace", shop.namespace, "--timeout=30s")
    namespaces.remove(shop.namespace)
