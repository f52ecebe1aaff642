"""What a folder of manifests wants is read whole, or refused whole: all that is wrong is said, with file, line and field."""

import re

import pytest

from rota_operator.manifests.documents import InvalidManifest, documents
from rota_operator.manifests.resources import Manifests, Name, gather

GROUP = """\
apiVersion: rota.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: orders-enricher, namespace: shop}
spec:
  bootstrapServers: ["rota://rota-coordinator.rota:7070"]
  topics: [orders]
  scaleTargetRef: {name: orders-enricher}
"""
WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: orders-enricher, namespace: shop, labels: {app: orders}}
spec:
  replicas: 3
  selector: {matchLabels: {app: orders}}
  template:
    metadata: {labels: {app: orders}}
    spec:
      serviceAccountName: orders
      containers:
        - name: app
          image: orders:1
          command: [python, -m, orders]
          resources: {requests: {cpu: 100m}}
          env:
            - {name: RATE, value: "5"}
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: bank, key: token}}}
          envFrom:
            - configMapRef: {name: settings}
"""
SECRET = """\
apiVersion: v1
kind: Secret
metadata: {name: bank, namespace: shop}
data: {token: czNjcmV0}
stringData: {user: me}
"""
SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {COLOUR: blue}
"""
ALL = (GROUP, WORKLOAD, SECRET, SETTINGS)
SENTENCE = re.compile(r"all\.yaml:[0-9]+: .+: .+")


def read(*texts: str) -> Manifests:
    return gather(documents("all.yaml", "---\n".join(texts)))


def refused(*texts: str) -> list[str]:
    with pytest.raises(InvalidManifest) as refusal:
        read(*texts)
    said = str(refusal.value).splitlines()
    assert all(SENTENCE.fullmatch(sentence) for sentence in said), said
    return said


def test_everything_is_under_its_name() -> None:
    found = read(*ALL)
    name = Name("shop", "orders-enricher")
    assert found.groups[name].group_id == "shop.orders-enricher"
    assert found.groups[name].spec.topics == ("orders",)
    workload = found.workloads[name]
    assert (workload.kind, workload.spec.replicas) == ("Deployment", 3)
    (container,) = workload.spec.template.spec.containers
    assert container.command == ("python", "-m", "orders")
    assert found.secrets[Name("shop", "bank")] == {"token": b"s3cret", "user": b"me"}
    assert found.config_maps[Name("shop", "settings")] == {"COLOUR": "blue"}


def test_who_says_no_namespace_is_in_the_default_one() -> None:
    assert list(read(SETTINGS.replace(", namespace: shop", "")).config_maps) == [Name("default", "settings")]


def test_secrets_do_not_show() -> None:
    assert "s3cret" not in repr(read(*ALL))
    assert "not base64" not in str(refused(SECRET.replace("czNjcmV0", '"not base64"')))


def test_all_that_is_wrong_is_said_at_once() -> None:
    group, workload = GROUP.replace("topics", "topicz"), WORKLOAD.replace("replicas: 3", "replicas: many")
    assert refused(group, workload, SECRET, SETTINGS) == [
        "all.yaml:6: spec.topicz is no field: correct its name, or leave it out",
        "all.yaml:13: spec.replicas is no whole number: give one",
    ]


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        (("kind: Service\napiVersion: v1\n",), "all.yaml:1: a Service is nothing that can be run here: give one of "),
        (("apiVersion: v1\n",), "all.yaml:1: the kind is missing: give one of "),
        ((GROUP.replace("v1alpha1", "v1"),), "all.yaml:1: apiVersion is not the one of a ConsumerGroup: give rota.dev/v1a"),
        ((SETTINGS.replace("name: settings, ", ""),), "all.yaml:3: metadata.name is missing: give it"),
        ((SETTINGS, SETTINGS), "all.yaml:8: there are two of ConfigMap settings in namespace shop: leave one"),
        ((SETTINGS + "dat: 1\n",), "all.yaml:5: dat is no field: correct its name, or leave it out"),
        ((GROUP + "spek: 1\n",), "all.yaml:8: spek is no field: correct its name, or leave it out"),
        ((GROUP,), "all.yaml:7: spec.scaleTargetRef.name: there is no Deployment orders-enricher in namespace shop: give"),
        (
            (GROUP, WORKLOAD.replace("Deployment", "StatefulSet"), SECRET, SETTINGS),
            "all.yaml:7: spec.scaleTargetRef.name: there is no Deployment orders-enricher",
        ),
        (
            (*ALL, GROUP.replace("name: orders-enricher, n", "name: second, n")),
            "all.yaml:47: spec.scaleTargetRef.name: Deployment orders-enricher in namespace shop consumes for ConsumerGroup "
            + "orders-enricher in namespace shop already: give each a workload of its own",
        ),
        (
            (GROUP, WORKLOAD, SETTINGS),
            "all.yaml:26: spec.template.spec.containers[0].env[1].valueFrom.secretKeyRef: there is no Secret bank in "
            + "namespace shop: give it",
        ),
        (
            (GROUP, WORKLOAD, SECRET.replace("token:", "tokens:"), SETTINGS),
            "all.yaml:26: spec.template.spec.containers[0].env[1].valueFrom.secretKeyRef: there is no Secret bank in "
            + "namespace shop with the key token: give it",
        ),
        (
            (GROUP, WORKLOAD, SECRET),
            "all.yaml:28: spec.template.spec.containers[0].envFrom[0].configMapRef: there is no ConfigMap settings in ",
        ),
        (
            (WORKLOAD.replace("command: [python, -m, orders]", "args: [a]"), SECRET, SETTINGS),
            "all.yaml:12: spec.template.spec.containers[0] has no command, and here are no images that have one: give",
        ),
        (
            (WORKLOAD.replace("serviceAccountName: orders", "volumes: []"), SECRET, SETTINGS),
            "all.yaml:9: spec.template.spec has volumes, which processes have not: leave it out, or run this in a cluster",
        ),
        (
            (WORKLOAD.replace("image: orders:1", "imag: orders:1"), SECRET, SETTINGS),
            "all.yaml:13: spec.template.spec.containers[0].imag is no field: correct its name, or leave it out",
        ),
        (
            (WORKLOAD.replace("{secretKeyRef: {name: bank, key: token}}", "{}"), SECRET, SETTINGS),
            "all.yaml:18: spec.template.spec.containers[0].env[1].valueFrom",
        ),
        ((SECRET.replace("czNjcmV0", "'%'"),), "all.yaml:4: data.token is not in base64: encode it, or put it in stringDat"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_with_its_place(texts: tuple[str, ...], wrong: str) -> None:
    (said,) = refused(*texts)
    assert said.startswith(wrong)


def test_two_groups_cannot_be_one() -> None:
    second = GROUP.replace("name: orders-enricher", "name: second") + "  groupId: shop.orders-enricher\n"
    other = WORKLOAD.replace("metadata: {name: orders-enricher", "metadata: {name: second")
    (said,) = refused(*ALL, second, other)
    assert said == (
        "all.yaml:48: spec.groupId: ConsumerGroup orders-enricher in namespace shop is shop.orders-enricher already: "
        "give another one"
    )


def test_what_is_optional_may_be_missing() -> None:
    workload = WORKLOAD.replace("name: settings", "name: settings, optional: true")
    assert read(GROUP, workload, SECRET).config_maps == {}
