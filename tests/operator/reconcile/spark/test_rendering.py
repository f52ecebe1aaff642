"""An application is its group's template with the sidecar in the driver's pod template, and nothing of an assignment."""

import copy
from typing import Any

import pytest

from rota_operator.reconcile.spark.kinds import APACHE, KINDS, KUBEFLOW
from rota_operator.reconcile.spark.rendering import (
    APPLICATION_LABEL,
    TEMPLATE_ANNOTATION,
    application,
    application_name,
    rendering,
)
from tests.operator.reconcile.spark.templates import TEMPLATES, template, wanted
from tests.operator.reconcile.worlds import UID

BOTH = (KUBEFLOW, APACHE)
LABELS = {"rota.dev/consumer-group-uid": UID, "rota.dev/consumer-group": "orders"}


# Of a restart policy of Kubeflow's kind.
INTERVALS = ("onFailureRetryInterval", "onSubmissionFailureRetryInterval")


def rendered(api_version: str, number: int = 0, **spec: Any) -> Any:  # noqa: ANN401  an object as it is written
    one = wanted(api_version, **spec)
    return application(one, rendering(one), application_name("orders", number))


def driver_of(found: Any) -> Any:  # noqa: ANN401  a pod template
    part, name = KINDS[found["apiVersion"]].driver_template
    return found["spec"][part][name]


@pytest.mark.parametrize("api_version", BOTH)
def test_the_template_stays_as_it_is_but_for_the_drivers_pod_template(api_version: str) -> None:
    found = rendered(api_version)
    part, name = KINDS[api_version].driver_template
    left = copy.deepcopy(found["spec"])
    del left[part][name]
    # Here without the defaults.
    for field in INTERVALS:
        left.get("restartPolicy", {}).pop(field, None)
    assert {field: value for field, value in left.items() if value} == TEMPLATES[api_version]
    assert found["metadata"] == {
        "name": "orders-0",
        "namespace": "shop",
        "labels": LABELS,
        "annotations": {TEMPLATE_ANNOTATION: rendering(wanted(api_version)).template_hash},
    }


@pytest.mark.parametrize("api_version", BOTH)
def test_the_sidecar_is_an_init_container_that_stays(api_version: str) -> None:
    driver = driver_of(rendered(api_version))
    [sidecar] = driver["spec"]["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("rota-sidecar", "Always")
    assert "--group-id=shop.orders" in sidecar["args"]
    [container] = driver["spec"]["containers"]
    assert container["name"] == "spark-kubernetes-driver"
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "ROTA_SIDECAR": "unix:///var/run/rota/app.sock",
        "ROTA_TLS_CA": "/var/run/secrets/rota/ca.crt",
        "ROTA_TOKEN_FILE": "/var/run/secrets/rota/token",
    }
    assert container["lifecycle"] == {"preStop": {"httpGet": {"path": "/drained", "port": 7081}}}
    mounted = {each["name"] for each in (*container["volumeMounts"], *sidecar["volumeMounts"])}
    assert mounted == {each["name"] for each in driver["spec"]["volumes"]}
    assert driver["metadata"]["labels"] == {**LABELS, APPLICATION_LABEL: "orders-0"}
    assert driver["spec"]["terminationGracePeriodSeconds"] == 60


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_a_restart_policy_of_kubeflows_kind_has_the_intervals_that_its_webhook_sets(policy: str) -> None:
    """Without an interval it never does: its state stays FAILING."""
    given = template(KUBEFLOW, restartPolicy={"type": policy, "onFailureRetryInterval": 20}, mode=None)
    spec = rendered(KUBEFLOW, given=given)["spec"]
    assert spec["restartPolicy"] == {
        "type": policy,
        "onFailureRetryInterval": 20,
        "onSubmissionFailureRetryInterval": 5,
    }
    assert spec["mode"] == "cluster"


@pytest.mark.parametrize("policy", [None, {"type": "Never"}])
def test_a_template_that_restarts_no_driver_gets_no_intervals(policy: Any) -> None:  # noqa: ANN401  JSON
    spec = rendered(KUBEFLOW, given=template(KUBEFLOW, restartPolicy=policy))["spec"]
    assert spec.get("restartPolicy") == policy


def test_kubeflows_traps_stay_empty() -> None:
    """A container below `driver.sidecars` never ends, and `driver.initContainers` needs a webhook."""
    assert rendered(KUBEFLOW)["spec"]["driver"].keys() == {"cores", "memory", "serviceAccount", "template"}


@pytest.mark.parametrize("api_version", BOTH)
def test_what_the_template_has_of_a_pod_stays(api_version: str) -> None:
    part, name = KINDS[api_version].driver_template
    pod = {
        "containers": [
            {"name": "logs", "image": "logs:1"},
            {
                "name": "spark-kubernetes-driver",
                "env": [{"name": "ROTA_SIDECAR", "value": "mine"}, {"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            },
        ],
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "imagePullSecrets": [{"name": "mine"}],
        "terminationGracePeriodSeconds": 600,
        "nodeSelector": {"disk": "fast"},
    }
    given = template(api_version)
    metadata = {"labels": {"team": "shop"}, "annotations": {"a": "b"}}
    given[part] = {**given.get(part, {}), name: {"metadata": metadata, "spec": copy.deepcopy(pod)}}
    sidecar = {"imagePullSecrets": ["ours", "mine"]}
    driver = driver_of(rendered(api_version, given=given, sidecar=sidecar))
    logs, main = driver["spec"]["containers"]
    assert logs == pod["containers"][0]  # type: ignore[index]
    assert main["env"][:2] == [{"name": "ROTA_SIDECAR", "value": "mine"}, {"name": "A", "value": "1"}]
    assert main["volumeMounts"][0] == {"name": "data", "mountPath": "/data"}
    assert main["lifecycle"] == {"preStop": {"exec": {"command": ["true"]}}}
    assert [each["name"] for each in driver["spec"]["initContainers"]] == ["fetch", "rota-sidecar"]
    assert driver["spec"]["volumes"][0] == {"name": "data", "emptyDir": {}}
    assert driver["spec"]["imagePullSecrets"] == [{"name": "mine"}, {"name": "ours"}]
    assert driver["spec"]["terminationGracePeriodSeconds"] == 600
    assert driver["spec"]["nodeSelector"] == {"disk": "fast"}
    assert driver["metadata"]["labels"].items() >= {"team": "shop", **LABELS}.items()
    assert driver["metadata"]["annotations"]["a"] == "b"
    # The first container is the driver's where none has Spark's name.
    pod["containers"] = [{"name": "main"}, {"name": "logs", "image": "logs:1"}]
    given[part][name] = {"spec": pod}
    first, second = driver_of(rendered(api_version, given=given))["spec"]["containers"]
    assert "ROTA_SIDECAR" in str(first)
    assert second == {"name": "logs", "image": "logs:1"}


@pytest.mark.parametrize("api_version", BOTH)
def test_applications_differ_by_their_names_alone(api_version: str) -> None:
    first, second = rendered(api_version, 0), rendered(api_version, 11)
    assert str(first).replace("orders-0", "NAME") == str(second).replace("orders-11", "NAME")
    assert first == rendered(api_version, 0)
    assert "assign" not in str(first).lower()


@pytest.mark.parametrize("api_version", BOTH)
@pytest.mark.parametrize(
    ("spec", "is_changed"),
    [
        ({"membership": {"rebalanceTimeoutSeconds": 200}}, True),
        ({"sidecar": {"image": "other:1"}}, False),
        ({"bootstrapServers": ["rota://other:7070"]}, True),
        ({"topics": ["payments"]}, False),
        ({"suspend": True}, False),
        ({"spark.partitionsPerApplication": 7}, False),
    ],
)
def test_only_what_a_restart_applies_is_in_an_application(
    api_version: str,
    spec: Any,  # noqa: ANN401  fields of a group
    is_changed: bool,
) -> None:
    """The image is the plan's: it is pinned. Settings, and the number of partitions, reach running drivers."""
    if "spark.partitionsPerApplication" in spec:
        spec = {"per": 7}
    before, after = rendering(wanted(api_version)), rendering(wanted(api_version, **spec))
    assert (before.template_hash != after.template_hash) is is_changed


@pytest.mark.parametrize("api_version", BOTH)
def test_a_change_of_the_template_changes_the_hash_and_rendering_changes_no_template(
    api_version: str,
) -> None:
    given = template(api_version)
    before = copy.deepcopy(given)
    one = rendering(wanted(api_version, given=given))
    assert given == before
    given["sparkConf"] = {**given.get("sparkConf", {}), "spark.app.version": "2"}
    assert rendering(wanted(api_version, given=given)).template_hash != one.template_hash
