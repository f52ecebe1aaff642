"""Names of the chart's objects: the longest release fits, and two releases share a cluster."""

import re

import pytest

from tests.chart.rendered import of_kind, pods
from tests.support import helm
from tests.support.helm import Object

pytestmark = pytest.mark.process

LONG = "a-release-with-the-longest-name-that-helm-accepts-53c"
NAMESPACED = "--set=watchNamespaces={shop}"
CLUSTER_SCOPED = ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
# Kubernetes adds a hash to these names, and puts the result into a label of at most 63 characters.
LIMITS = {"StatefulSet": 52, "CronJob": 52, "Job": 63, "Deployment": 52, "Service": 63}


def key(object_: Object) -> tuple[str, str, str]:
    namespace = "" if object_["kind"] in CLUSTER_SCOPED else object_["metadata"]["namespace"]
    return object_["kind"], namespace, object_["metadata"]["name"]


@pytest.mark.parametrize("release", ["rota", "a", LONG])
def test_names_and_labels_fit(release: str) -> None:
    assert len(LONG) == 53
    for each in helm.render("--set=coordinator.enabled=true", release=release):
        kind, name = each["kind"], each["metadata"]["name"]
        if kind in LIMITS:
            assert DNS_LABEL.fullmatch(name), (kind, name)
            assert len(name) <= LIMITS[kind], (kind, name)
        for value in each["metadata"].get("labels", {}).values():
            assert LABEL.fullmatch(value), value


def test_long_names_that_share_a_prefix_stay_different() -> None:
    one, other = (helm.render(release=name) for name in (LONG, f"{LONG[:-1]}d"))
    assert not {key(each) for each in one} & {key(each) for each in other} - {
        ("CustomResourceDefinition", "", "consumergroups.rota.dev")
    }


@pytest.mark.parametrize("where", [("rota", "b"), ("other", "a"), ("rota-a", "a")])
def test_two_releases_do_not_collide(where: tuple[str, str]) -> None:
    without_crd = "--set=crds.install=false"
    release, namespace = where
    one = helm.render(NAMESPACED, release="rota", namespace="a")
    other = helm.render(without_crd, NAMESPACED, release=release, namespace=namespace)
    assert {key(each) for each in one} & {key(each) for each in other} == set()
    cluster_wide = of_kind(other, "ClusterRole", "ClusterRoleBinding")
    assert cluster_wide
    assert all(f":{namespace}:" in each["metadata"]["name"] for each in cluster_wide)


def test_the_same_prefix_in_release_and_namespace_is_distinguished() -> None:
    one, other = (
        {
            key(each)
            for each in of_kind(helm.render(release=release, namespace=namespace), *CLUSTER_SCOPED[:2])
        }
        for release, namespace in (("b-rota", "a"), ("rota", "a-b"))
    )
    assert one & other == set()


@pytest.mark.parametrize(
    ("release", "arguments", "prefix"),
    [("rota", (), "rota"), ("prod", (), "prod-rota"), ("prod", ("--set=fullnameOverride=bus",), "bus")],
)
def test_names_begin_with_the_release(release: str, arguments: tuple[str, ...], prefix: str) -> None:
    objects = helm.render(*arguments, release=release)
    assert {each["metadata"]["name"] for each in of_kind(objects, "Service")} == {
        f"{prefix}-operator",
        f"{prefix}-coordinator",
        f"{prefix}-coordinator-pods",
    }


def test_every_object_has_labels_and_every_selector_finds_its_pods() -> None:
    objects = helm.render()
    templates = [pod["metadata"]["labels"] for _, pod in pods(objects)]
    for each in objects:
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "rota"
        spec = each.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        if each["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment", "StatefulSet"):
            wanted = selector.get("matchLabels", selector)
            assert any(wanted.items() <= labels.items() for labels in templates), each["metadata"]["name"]
