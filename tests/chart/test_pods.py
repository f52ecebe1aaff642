"""Pods of the chart pass the Pod Security level "restricted", and have no more than they use."""

from collections.abc import Callable
from copy import deepcopy

import pytest

from tests.chart.rendered import VARIANTS, container, named, of, of_kind, pods
from tests.chart.restricted import offences
from tests.support import helm
from tests.support.helm import Object

pytestmark = pytest.mark.process


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_pod_is_restricted(variant: str) -> None:
    found = list(pods(of(variant)))
    assert len(found) >= 2
    assert [(name, list(offences(pod))) for name, pod in found if list(offences(pod))] == []


def spoil(path: str, value: object) -> Callable[[Object], None]:
    """Return a change of a pod; a path of its spec, `c.` for its first container, None removes the field."""

    def change(pod: Object) -> None:
        at = pod["spec"]
        if path.startswith("c."):
            at = at["containers"][0]
        *parents, last = path.removeprefix("c.").split(".")
        for each in parents:
            at = at[each]
        if value is None:
            del at[last]
        else:
            at[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "offence"),
    [
        ("hostNetwork", True, "hostNetwork"),
        ("volumes", [{"name": "disk", "hostPath": {"path": "/"}}], "volume disk: hostPath"),
        ("securityContext.runAsNonRoot", None, "operator: runAsNonRoot"),
        ("securityContext.runAsUser", 0, "operator: runAsUser"),
        ("securityContext.runAsGroup", None, "operator: runAsGroup by number"),
        ("securityContext.seccompProfile", None, "operator: seccompProfile"),
        ("c.securityContext.privileged", True, "operator: privileged"),
        ("c.securityContext.allowPrivilegeEscalation", None, "operator: allowPrivilegeEscalation"),
        ("c.securityContext.capabilities.drop", [], "operator: capabilities.drop"),
        ("c.securityContext.capabilities.add", ["SYS_ADMIN"], "operator: capabilities.add"),
        ("c.securityContext.readOnlyRootFilesystem", False, "operator: readOnlyRootFilesystem"),
        ("c.securityContext.runAsNonRoot", False, "operator: runAsNonRoot"),
        ("c.resources.limits", None, "operator: resources.limits"),
        ("c.ports", [{"containerPort": 1, "hostPort": 1}], "operator: hostPort"),
        ("enableServiceLinks", None, "enableServiceLinks"),
        ("automountServiceAccountToken", None, "automountServiceAccountToken"),
    ],
)
def test_the_checker_finds_each_offence(path: str, value: object, offence: str) -> None:
    pod = deepcopy(dict(pods(of("values.yaml")))["Deployment/rota-operator"])
    assert list(offences(pod)) == []
    spoil(path, value)(pod)
    assert offence in list(offences(pod))


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_pods_that_call_the_api_server_have_a_token(variant: str) -> None:
    found = {name: pod["spec"]["automountServiceAccountToken"] for name, pod in pods(of(variant))}
    having = {name.partition("/")[0] for name, has in found.items() if has}
    assert having - {"Job", "CronJob"} == {"Deployment"} | (
        {"StatefulSet"} if "--token-review" in helm.rendered(*VARIANTS[variant]) else set()
    )
    accounts = of_kind(of(variant), "ServiceAccount")
    assert [each["automountServiceAccountToken"] for each in accounts] == [False] * len(accounts)


def test_a_store_on_sqlite_has_one_volume_that_outlives_the_release() -> None:
    objects = of("values.yaml")
    claim = named(objects, "PersistentVolumeClaim", "rota-coordinator")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    volumes = {
        each["name"]: each for each in dict(pods(objects))["StatefulSet/rota-coordinator"]["spec"]["volumes"]
    }
    assert volumes["state"]["persistentVolumeClaim"] == {"claimName": "rota-coordinator"}
    assert of_kind(of("a volume that goes"), "PersistentVolumeClaim") == []
    assert [each["metadata"]["name"] for each in of_kind(objects, "PodDisruptionBudget")] == ["rota-operator"]


def test_several_coordinators_are_reached_by_the_names_of_their_pods() -> None:
    objects = of("values-postgresql.yaml")
    found = container(objects, "StatefulSet", "rota-coordinator")
    assert "--advertise=$(POD_NAME).rota-coordinator-pods.rota:7070" in found["args"]
    workload = named(objects, "StatefulSet", "rota-coordinator")["spec"]
    assert (workload["replicas"], workload["serviceName"]) == (2, "rota-coordinator-pods")
    assert named(objects, "Service", "rota-coordinator-pods")["spec"]["clusterIP"] == "None"
    assert named(objects, "PodDisruptionBudget", "rota-coordinator")["spec"]["maxUnavailable"] == 1
    spread = workload["template"]["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert of_kind(objects, "PersistentVolumeClaim") == []


def test_no_secret_stands_in_arguments_or_variables() -> None:
    for name, pod in pods(of("values-postgresql.yaml")):
        for each in pod["spec"]["containers"][0].get("env", ()):
            assert "value" not in each, name
    stored = container(of("values-postgresql.yaml"), "StatefulSet", "rota-coordinator")
    assert stored["env"][1]["valueFrom"] == {"secretKeyRef": {"name": "rota-postgresql", "key": "url"}}
    assert not any(argument.startswith("--store") for argument in stored["args"])


def test_an_upgrade_of_the_chart_alone_restarts_no_pod() -> None:
    for name, pod in pods(of("values.yaml")):
        if not name.startswith("Pod/"):
            assert {
                key for key in pod["metadata"]["labels"] if "version" in key or "chart" in key
            } == set(), name


def test_images_are_named_by_registry_tag_and_digest() -> None:
    digest = f"sha256:{'0' * 64}"
    objects = helm.render(
        f"--set=images.registry=registry.example/rota/,images.tag=1.2.3,coordinator.image.digest={digest}",
        "--set=images.pullSecrets[0].name=pull",
    )
    assert (
        container(objects, "Deployment", "rota-operator")["image"]
        == "registry.example/rota/rota-operator:1.2.3"
    )
    assert (
        container(objects, "StatefulSet", "rota-coordinator")["image"]
        == f"registry.example/rota/rota-coordinator@{digest}"
    )
    assert (
        "--sidecar-image=registry.example/rota/rota-sidecar:1.2.3"
        in container(objects, "Deployment", "rota-operator")["args"]
    )
    assert all(pod["spec"]["imagePullSecrets"] == [{"name": "pull"}] for _, pod in pods(objects))
