"""A workload is adopted, stays its owner's, and is given back as its owner has applied it. No pod runs here."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.api_server.adopting import (
    CLEANUP_S,
    KINDS,
    SIDECAR,
    WITHIN_S,
    Shop,
    as_list,
    consumer_group,
    open_shop,
    owners_part,
    resource_of,
    workload,
)
from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest
from tests.support.coordinator import Coordinator
from tests.support.processes import wait_for

# Begun before what takes less.
pytestmark = [pytest.mark.api_server, pytest.mark.timeout(300)]

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
    """Replace any version: without a path, kubectl replaces the one that it has read, which a controller may have counted pods in since."""
    for each in manifests:
        resource = f"{each['kind'].lower()}s/{each['metadata']['name']}"
        path = f"/apis/{each['apiVersion']}/namespaces/{shop.namespace}/{resource}"
        shop.cluster.kubectl("replace", "--raw", path, "--filename", "-", input=json.dumps(each))


def scale(shop: Shop, manifests: Sequence[Manifest]) -> None:
    shop.kubectl("scale", *map(resource_of, manifests), "--replicas=1")


def restart(shop: Shop, manifests: Sequence[Manifest]) -> None:
    shop.kubectl("rollout", "restart", *map(resource_of, manifests))


class Change(NamedTuple):
    """A change that an owner makes to adopted workloads."""

    make: Callable[[Shop, Sequence[Manifest]], None]
    # With these flags he has applied the workloads.
    created: Sequence[str] = ()


CHANGES = {
    "apply": Change(apply_change),
    "apply-server-side": Change(apply_change_server_side, SERVER_SIDE),
    "replace": Change(replace),
    "scale": Change(scale),
    "restart": Change(restart, SERVER_SIDE),
}


@pytest.fixture(scope="module")
def released(shop: Shop) -> Mapping[str, tuple[list[Any], list[Any]]]:
    """The owner's part of workloads that were adopted, changed and released, and of their twins; all changes are made side by side."""
    # A twin is treated alike by its owner, and never adopted.
    adopted = {name: workloads(f"{name}-adopted") for name in CHANGES}
    for name, change in CHANGES.items():
        shop.apply(*adopted[name], *workloads(f"{name}-twin"), flags=change.created)
    everything = [each for found in adopted.values() for each in found]
    shop.groups_of(everything)
    names = [resource_of(each) for each in everything]
    shop.wait_adopted(*names)
    for name, change in CHANGES.items():
        change.make(
            shop, [*workloads(f"{name}-adopted", version="2"), *workloads(f"{name}-twin", version="2")]
        )
    shop.wait_adopted(*names)
    shop.delete_groups(*(each["metadata"]["name"] for each in everything))
    return {
        name: (
            [owners_part(each) for each in shop.get_all(found)],
            [owners_part(each) for each in shop.get_all(workloads(f"{name}-twin"))],
        )
        for name, found in adopted.items()
    }


@pytest.mark.parametrize("change", CHANGES)
def test_a_released_workload_is_what_its_owner_made_of_it_meanwhile(
    released: Mapping[str, tuple[list[Any], list[Any]]], change: str
) -> None:
    adopted, twins = released[change]
    assert adopted == twins


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
    def with_grace(seconds: int) -> list[Manifest]:
        return [
            workload(kind, f"short-{kind.lower()}", terminationGracePeriodSeconds=seconds) for kind in KINDS
        ]

    short = with_grace(SHORT_GRACE_S)
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

    shop.apply(*with_grace(raised_s))
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
    manifest = workload("Deployment", "replaced")
    shop.apply(manifest)
    shop.groups_of([manifest])
    shop.wait_adopted("deployment/replaced")
    before = shop.get("deployment/replaced")
    replace(shop, [manifest])
    shop.wait_adopted("deployment/replaced")
    after = shop.get("deployment/replaced")
    assert after["spec"] == before["spec"]


class Unfit(NamedTuple):
    """A workload that cannot be adopted."""

    pod: dict[str, Any]
    said: str
    sidecar: Mapping[str, str] = {}


UNFIT = {
    "container-like-ours": Unfit(
        {"containers": [{"name": SIDECAR, "image": "other:1"}]}, f"has a container named {SIDECAR}"
    ),
    "init-container-like-ours": Unfit(
        {"initContainers": [{"name": SIDECAR, "image": "other:1"}]}, f"has an init container named {SIDECAR}"
    ),
    "unknown-container": Unfit(
        {}, "has no container nope; set spec.sidecar.container to one of: app, proxy", {"container": "nope"}
    ),
    "host-network": Unfit({"hostNetwork": True}, "uses the host network"),
}


@pytest.fixture(scope="module")
def unfit(shop: Shop) -> Mapping[str, Any]:
    """The owner's part of each workload before its group came."""
    found = {name: workload("Deployment", name, **each.pod) for name, each in UNFIT.items()}
    shop.apply(*found.values())
    before = {name: owners_part(shop.get(resource_of(each))) for name, each in found.items()}
    shop.apply(
        *(
            consumer_group(name, shop.coordinator, "Deployment", name, sidecar=each.sidecar)
            for name, each in UNFIT.items()
        )
    )
    return before


@pytest.mark.parametrize("name", UNFIT)
def test_a_workload_that_cannot_be_adopted_is_left_alone_and_the_reason_said(
    shop: Shop, unfit: Mapping[str, Any], name: str
) -> None:
    assert f"Deployment {name} {UNFIT[name].said}" in shop.wait_ready_reason(name, "InvalidTarget")
    assert owners_part(shop.get(f"deployment/{name}")) == unfit[name]
    assert "finalizers" not in shop.get(f"consumergroup/{name}")["metadata"]


def test_a_workload_that_is_created_after_its_group_is_adopted(shop: Shop) -> None:
    # A character that JSON writes as two escapes, of which YAML knows neither.
    servers = [f"rota://{shop.coordinator}", "rota://\U0002a7e6.invalid:7070"]
    shop.group("late", "StatefulSet", "late", bootstrapServers=servers)
    said = shop.wait_ready_reason("late", "TargetNotFound")
    assert said == "spec.scaleTargetRef: StatefulSet late does not exist; create it"
    shop.apply(workload("StatefulSet", "late"))
    shop.wait_adopted("statefulset/late")
    shop.wait_ready_reason("late", "ScaledToZero")


def test_of_two_groups_the_older_has_the_workload_and_after_it_the_younger(shop: Shop) -> None:
    shop.apply(workload("Deployment", "claimed"))
    shop.group("older", "Deployment", "claimed")
    shop.wait_adopted("deployment/claimed")
    shop.wait_younger_than("older")
    shop.group("younger", "Deployment", "claimed")
    said = shop.wait_ready_reason("younger", "TargetClaimed")
    assert f"belongs to the older ConsumerGroup {shop.namespace}/older" in said
    younger = shop.get("consumergroup/younger")["metadata"]["uid"]
    assert shop.get("deployment/claimed")["metadata"]["labels"]["rota.dev/consumer-group"] == "older"

    shop.delete_groups("older")
    shop.wait("deployment/claimed", r"jsonpath={.metadata.labels.rota\.dev/consumer-group-uid}=" + younger)
    shop.wait_adopted("deployment/claimed")
    shop.wait_ready_reason("younger", "ScaledToZero")


def test_another_target_is_adopted_after_the_former_is_given_back(shop: Shop) -> None:
    former, next_one = workload("Deployment", "former"), workload("StatefulSet", "next-one")
    shop.apply(former, next_one)
    owners = shop.get("deployment/former")
    shop.group("moving", "Deployment", "former")
    shop.wait_adopted("deployment/former")
    shop.group("moving", "StatefulSet", "next-one")
    shop.wait_adopted("statefulset/next-one")
    # The release comes first, so it has been done by now.
    assert owners_part(shop.get("deployment/former")) == owners_part(owners)


def test_another_target_that_does_not_exist_leaves_the_former_to_its_owner(shop: Shop) -> None:
    shop.apply(workload("Deployment", "left"))
    owners = shop.get("deployment/left")
    shop.group("leaving", "Deployment", "left")
    shop.wait_adopted("deployment/left")
    shop.group("leaving", "Deployment", "nope")
    shop.wait_ready_reason("leaving", "TargetNotFound")
    assert owners_part(shop.get("deployment/left")) == owners_part(owners)
    assert "finalizers" not in shop.get("consumergroup/leaving")["metadata"]


def test_scaling_the_group_scales_its_workload(shop: Shop) -> None:
    manifests = [workload(kind, f"scaled-{kind.lower()}") for kind in KINDS]
    shop.apply(*manifests)
    shop.groups_of(manifests, replicas=0)
    shop.wait_adopted(*map(resource_of, manifests))
    shop.kubectl("scale", "cg/scaled-deployment", "cg/scaled-statefulset", "--replicas=3")
    for each in manifests:
        shop.wait(resource_of(each), "jsonpath={.spec.replicas}=3")
    shop.wait("cg/scaled-deployment", "jsonpath={.status.desiredReplicas}=3")


def test_a_disruption_budget_is_created_changed_and_deleted(shop: Shop) -> None:
    shop.apply(workload("Deployment", "budgeted"))
    budget = "poddisruptionbudget/rota-budgeted"
    shop.group("budgeted", "Deployment", "budgeted", podDisruptionBudget={"maxUnavailable": 1})
    shop.wait(budget, "create")
    found = shop.get(budget)
    assert found["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "budgeted"}}}
    [owner] = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ConsumerGroup", "budgeted")

    shop.group("budgeted", "Deployment", "budgeted", podDisruptionBudget={"maxUnavailable": "25%"})
    shop.wait(budget, "jsonpath={.spec.maxUnavailable}=25%")
    # What someone else deletes is created again.
    shop.kubectl("delete", budget)
    shop.wait(budget, "create")
    shop.group("budgeted", "Deployment", "budgeted")
    shop.wait(budget, "delete")


def test_a_namespace_with_an_adopted_workload_can_be_deleted(
    operated: Cluster, outside_coordinator: Coordinator, namespaces: list[str]
) -> None:
    shop = open_shop(operated, outside_coordinator.address, namespaces)
    shop.apply(workload("Deployment", "enricher"))
    shop.group("orders", "Deployment", "enricher", podDisruptionBudget={"maxUnavailable": 1})
    shop.wait_adopted("deployment/enricher")
    shop.cluster.kubectl("delete", "namespace", shop.namespace, f"--timeout={CLEANUP_S}s")
    namespaces.remove(shop.namespace)
