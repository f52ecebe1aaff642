"""
SparkApplications of groups at a real API server, with the definition of Kubeflow's Spark operator, and with real sidecars.

No Spark operator runs, because there are no nodes: `spark_operator` writes the states, and makes the drivers' pods. The definition of
Apache's kind comes in no package, so a definition of its name that takes any field serves in its place.
"""

import json
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota_operator.reconcile.spark.kinds import APACHE, KINDS, KUBEFLOW
from tests.api_server.adopting import LABELS, WITHIN_S, Shop, open_shop
from tests.api_server.spark_operator import SparkOperator
from tests.operator.reconcile.spark.templates import template
from tests.support.cluster import Cluster
from tests.support.cluster.operator_process import SIDECAR_IMAGE, OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.definitions import SPARK_OPERATOR
from tests.support.processes import wait_for

# Among the longest: by its time limit it is begun before shorter modules.
pytestmark = [pytest.mark.api_server, pytest.mark.timeout(300)]

TOPIC, PARTITIONS = "enriched", 3
POLL_S = 0.2
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
APACHE_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sparkapplications.spark.apache.org"},
    "spec": {
        "group": "spark.apache.org",
        "names": {"kind": "SparkApplication", "plural": "sparkapplications", "singular": "sparkapplication"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN, "status": OPEN}}
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def operator_process(
    api_server: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator that manages SparkApplications, before any kind of them is installed."""
    operator = OperatorProcess(tmp_path_factory.mktemp("operator"), api_server.kubeconfig, "--spark")
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture(scope="module")
def spark_shop(operated: Cluster, outside_coordinator: Coordinator, namespaces: list[str]) -> Iterator[Shop]:
    """A namespace, and a topic; definitions that tests add are removed in the end."""
    outside_coordinator.make_topic(TOPIC, PARTITIONS)
    shop = open_shop(operated, outside_coordinator.address, namespaces)
    yield shop
    # Their SparkApplications go first, while a definition serves them.
    shop.kubectl("delete", "consumergroups", "--all", f"--timeout={WITHIN_S}s")
    names = [f"sparkapplications.{each.partition('/')[0]}" for each in KINDS]
    operated.kubectl("delete", "customresourcedefinitions", *names, "--ignore-not-found", "--wait=false")


def apply_group(shop: Shop, name: str, api_version: str, *, per: int = 1, **fields: Any) -> None:  # noqa: ANN401
    """Create or change a ConsumerGroup with SparkApplications; `fields` change the template."""
    spark = {
        "enabled": True,
        "apiVersion": api_version,
        "partitionsPerApplication": per,
        "template": {"spec": template(api_version, **fields)},
    }
    spec = {
        "bootstrapServers": [f"rota://{shop.coordinator}"],
        "topics": [TOPIC],
        "offsets": {"commit": {"mode": "external"}},
        "spark": spark,
    }
    shop.apply(
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": {"name": name, "labels": LABELS},
            "spec": spec,
        }
    )


def until(what: str, holds: Callable[[], bool]) -> None:
    wait_for(what, holds, within_s=WITHIN_S, poll_s=POLL_S)


def uids(spark: SparkOperator) -> dict[str, str]:
    return {name: each["metadata"]["uid"] for name, each in spark.applications().items()}


def status(shop: Shop, name: str) -> Any:  # noqa: ANN401  a status as it is stored
    return shop.get(f"consumergroup/{name}").get("status") or {}


def has_status(shop: Shop, name: str, **wanted: object) -> bool:
    found = status(shop, name)
    return {field: found.get(field) for field in wanted} == wanted


def members(shop: Shop, name: str) -> dict[str, str]:
    """Return the ids of members with partitions, by the application of their driver."""
    found = status(shop, name).get("placements") or ()
    return {
        each.get("application", ""): each["memberId"]
        for each in found
        if each["partitions"] and each.get("memberId")
    }


def is_placed(shop: Shop, name: str, *applications: str, without: Collection[str] = ()) -> bool:
    """Return whether exactly these applications are members, and none of them by a former driver's id."""
    found = members(shop, name)
    return found.keys() == {*applications} and not {*found.values()} & {*without}


def check_created(spark: SparkOperator, group_uid: str) -> None:
    """Check that the applications belong to the group, with a sidecar in the driver's pod and the arguments of the template."""
    for each in spark.applications().values():
        [owner] = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("ConsumerGroup", group_uid)
        assert each["metadata"]["labels"]["rota.dev/consumer-group"] == "orders"
        [sidecar] = each["spec"]["driver"]["template"]["spec"]["initContainers"]
        assert (sidecar["image"], sidecar["restartPolicy"]) == (SIDECAR_IMAGE, "Always")
        assert each["spec"]["arguments"] == ["--table", "orders"]


def test_a_group_has_its_applications_scaled_and_replaced_one_drained_after_the_other(
    spark_shop: Shop, operator_process: OperatorProcess, tmp_path: Path
) -> None:
    shop = spark_shop
    spark = SparkOperator(shop, KUBEFLOW, operator_process.fleet, tmp_path)
    names = [f"orders-{number}" for number in range(PARTITIONS)]

    # Without its definition, then with it.
    apply_group(shop, "orders", KUBEFLOW)
    assert "install their Spark operator" in shop.wait_ready_reason("orders", "SparkNotInstalled")
    shop.cluster.kubectl("apply", "--server-side", "--filename", str(SPARK_OPERATOR.first()))
    shop.cluster.wait_served("sparkapplications.sparkoperator.k8s.io")
    until("the applications are created", lambda: sorted(spark.applications()) == names)
    check_created(spark, shop.get("consumergroup/orders")["metadata"]["uid"])

    # States become the group's status, and drivers its members.
    spark.report("orders-1", "FAILED", "no such image")
    said = "orders-1 is FAILED (no such image): see the log of its driver"
    until("the state is named", lambda: said in shop.condition("orders", "Ready")["message"])
    spark.run(*names)
    until("all run", partial(has_status, shop, "orders", replicas=3, readyReplicas=3, desiredReplicas=3))
    until("all are members", partial(is_placed, shop, "orders", *names))

    # Fewer are needed: the last one is drained, then deleted.
    first, former = uids(spark), members(shop, "orders").values()
    apply_group(shop, "orders", KUBEFLOW, per=2)
    until("the last one is deleted", lambda: sorted(uids(spark)) == names[:2])
    assert spark.drained(first["orders-2"])
    assert uids(spark).items() <= first.items()
    spark.end_others([*uids(spark).values()])

    # Another template: one after the other, and the second one only once the first one runs.
    apply_group(shop, "orders", KUBEFLOW, per=2, arguments=["--table", "changed"])
    until("the first one is replaced", lambda: uids(spark).get("orders-0") not in (None, first["orders-0"]))
    assert spark.drained(first["orders-0"])
    waits = "1 of 2 SparkApplications have the former template; waiting for orders-0"
    until("the second one waits", lambda: waits in shop.condition("orders", "Ready")["message"])
    assert uids(spark)["orders-1"] == first["orders-1"]
    assert not spark.drained(first["orders-1"])
    spark.end_others([first["orders-1"]])
    spark.run("orders-0")
    until("the second one is replaced", lambda: uids(spark).get("orders-1") not in (None, first["orders-1"]))
    assert spark.drained(first["orders-1"])
    spark.end_others([uids(spark)["orders-0"]])
    spark.run("orders-1")
    until("all run", partial(has_status, shop, "orders", replicas=2, readyReplicas=2))
    until(
        "both are members, whom the operator can drain",
        partial(is_placed, shop, "orders", *names[:2], without=former),
    )
    arguments = [each["spec"]["arguments"] for each in spark.applications().values()]
    assert arguments == [["--table", "changed"]] * 2

    # A bad template changes nothing, and says what is wrong.
    before = uids(spark)
    apply_group(shop, "orders", KUBEFLOW, per=2, image=None)
    assert shop.wait_ready_reason("orders", "InvalidSpec") == (
        "spec.spark.template.spec.image is required: the driver has no image; set it to an image with Spark and your code"
    )
    assert uids(spark) == before

    # The group goes after its drained applications.
    shop.delete_groups("orders")
    assert spark.applications() == {}
    assert all(map(spark.drained, before.values()))
    spark.end_others([])


def test_a_group_has_applications_of_apaches_kind(
    spark_shop: Shop, operator_process: OperatorProcess, tmp_path: Path
) -> None:
    shop = spark_shop
    spark = SparkOperator(shop, APACHE, operator_process.fleet, tmp_path)
    shop.cluster.kubectl("apply", "--filename", "-", input=json.dumps(APACHE_DEFINITION))
    shop.cluster.wait_served("sparkapplications.spark.apache.org")
    apply_group(shop, "sessions", APACHE, per=12)
    until("the application is created", lambda: list(spark.applications()) == ["sessions-0"])
    [application] = spark.applications().values()
    pod = application["spec"]["driverSpec"]["podTemplateSpec"]["spec"]
    assert [each["restartPolicy"] for each in pod["initContainers"]] == ["Always"]
    spark.run("sessions-0")
    until("it runs", partial(has_status, shop, "sessions", replicas=1, readyReplicas=1))
    until("it is a member", partial(is_placed, shop, "sessions", "sessions-0"))
    shop.delete_groups("sessions")
    assert spark.drained(application["metadata"]["uid"])
    assert spark.applications() == {}
    spark.end_others([])
