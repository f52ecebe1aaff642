"""A folder of manifests is read whole, or refused whole: every error is reported with file, line and field."""

import re

import pytest

from rota_operator.manifests.documents import InvalidManifest, parse_documents
from rota_operator.manifests.resources import Manifests, NamespacedName, collect_resources

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
MESSAGE = re.compile(
    r"all\.yaml:[0-9]+: .*\b(must be|must have|must set|must not|is required|expected|not found|remove|choose|use)\b.*"
)


def read(*texts: str) -> Manifests:
    return collect_resources(parse_documents("all.yaml", "---\n".join(texts)))


def refused(*texts: str) -> list[str]:
    with pytest.raises(InvalidManifest) as refusal:
        read(*texts)
    said = str(refusal.value).splitlines()
    assert all(MESSAGE.fullmatch(message) for message in said), said
    return said


def test_everything_is_under_its_name() -> None:
    found = read(*ALL)
    name = NamespacedName("shop", "orders-enricher")
    assert found.groups[name].group_id == "shop.orders-enricher"
    assert found.groups[name].spec.topics == ("orders",)
    workload = found.workloads[name]
    assert (workload.kind, workload.spec.replicas) == ("Deployment", 3)
    (container,) = workload.spec.template.spec.containers
    assert container.command == ("python", "-m", "orders")
    assert found.secrets[NamespacedName("shop", "bank")] == {"token": b"s3cret", "user": b"me"}
    assert found.config_maps[NamespacedName("shop", "settings")] == {"COLOUR": "blue"}


def test_who_says_no_namespace_is_in_the_default_one() -> None:
    assert list(read(SETTINGS.replace(", namespace: shop", "")).config_maps) == [
        NamespacedName("default", "settings")
    ]


def test_secrets_do_not_show() -> None:
    assert "s3cret" not in repr(read(*ALL))
    assert "not base64" not in str(refused(SECRET.replace("czNjcmV0", '"not base64"')))


def test_all_that_is_wrong_is_said_at_once() -> None:
    group, workload = GROUP.replace("topics", "topicz"), WORKLOAD.replace("replicas: 3", "replicas: many")
    assert refused(group, workload, SECRET, SETTINGS) == [
        "all.yaml:6: spec.topicz is an unknown field; correct its name or remove it",
        "all.yaml:13: spec.replicas must be an integer",
    ]


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        (("kind: Service\napiVersion: v1\n",), "all.yaml:1: unsupported kind \"Service\"; expected one of "),
        (("apiVersion: v1\n",), "all.yaml:1: kind is required; expected one of "),
        ((GROUP.replace("v1alpha1", "v1"),), "all.yaml:1: apiVersion of a ConsumerGroup must be rota.dev/v1a"),
        ((SETTINGS.replace("name: settings, ", ""),), "all.yaml:3: metadata.name is required"),
        ((SETTINGS, SETTINGS), "all.yaml:8: ConfigMap settings in namespace shop is defined twice; remove one"),
        ((SETTINGS + "dat: 1\n",), "all.yaml:5: dat is an unknown field; correct its name or remove it"),
        ((GROUP + "spek: 1\n",), "all.yaml:8: spek is an unknown field; correct its name or remove it"),
        ((GROUP,), "all.yaml:7: spec.scaleTargetRef.name: Deployment orders-enricher in namespace shop not found"),
        (
            (GROUP, WORKLOAD.replace("Deployment", "StatefulSet"), SECRET, SETTINGS),
            "all.yaml:7: spec.scaleTargetRef.name: Deployment orders-enricher in namespace shop not found",
        ),
        (
            (*ALL, GROUP.replace("name: orders-enricher, n", "name: second, n")),
            "all.yaml:47: spec.scaleTargetRef.name: Deployment orders-enricher in namespace shop already consumes for "
            + "ConsumerGroup orders-enricher in namespace shop; use another workload",
        ),
        (
            (GROUP, WORKLOAD, SETTINGS),
            "all.yaml:26: spec.template.spec.containers[0].env[1].valueFrom.secretKeyRef: Secret bank in "
            + "namespace shop not found",
        ),
        (
            (GROUP, WORKLOAD, SECRET.replace("token:", "tokens:"), SETTINGS),
            "all.yaml:26: spec.template.spec.containers[0].env[1].valueFrom.secretKeyRef: key token not "
            + "found in Secret bank in namespace shop",
        ),
        (
            (GROUP, WORKLOAD, SECRET),
            "all.yaml:28: spec.template.spec.containers[0].envFrom[0].configMapRef: ConfigMap settings in ",
        ),
        (
            (WORKLOAD.replace("command: [python, -m, orders]", "args: [a]"), SECRET, SETTINGS),
            "all.yaml:12: spec.template.spec.containers[0] must set command: local processes have no image",
        ),
        (
            (WORKLOAD.replace("serviceAccountName: orders", "volumes: []"), SECRET, SETTINGS),
            "all.yaml:9: spec.template.spec must not set volumes, which local processes do not support; remove it or run",
        ),
        (
            (WORKLOAD.replace("image: orders:1", "imag: orders:1"), SECRET, SETTINGS),
            "all.yaml:13: spec.template.spec.containers[0].imag is an unknown field; correct its name or remove it",
        ),
        (
            (WORKLOAD.replace("{secretKeyRef: {name: bank, key: token}}", "{}"), SECRET, SETTINGS),
            "all.yaml:18: spec.template.spec.containers[0].env[1].valueFrom",
        ),
        ((SECRET.replace("czNjcmV0", "'%'"),), "all.yaml:4: data.token must be base64; encode it, or use stringData"),
    ],
)  # fmt: skip
def test_unsupported_fields_are_refused_with_their_path(texts: tuple[str, ...], wrong: str) -> None:
    (said,) = refused(*texts)
    assert said.startswith(wrong)


def test_two_groups_cannot_be_one() -> None:
    second = GROUP.replace("name: orders-enricher", "name: second") + "  groupId: shop.orders-enricher\n"
    other = WORKLOAD.replace("metadata: {name: orders-enricher", "metadata: {name: second")
    (said,) = refused(*ALL, second, other)
    assert said == (
        "all.yaml:48: spec.groupId shop.orders-enricher is already used by ConsumerGroup orders-enricher in namespace shop; "
        "choose another one"
    )


def test_what_is_optional_may_be_missing() -> None:
    workload = WORKLOAD.replace("name: settings", "name: settings, optional: true")
    assert read(GROUP, workload, SECRET).config_maps == {}
