"""A real API server takes what the operator takes, refuses what it refuses, in the same words, and fills in the same values."""

import json
from pathlib import Path
from typing import Any

import pytest

from rota_operator.manifests.documents import parse_documents
from rota_operator.spec.validation import parse_spec
from tests.operator.spec.manifests import BROKEN, Broken, Spec, small, whole
from tests.support.cluster import Cluster
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.tree import REPO

pytestmark = pytest.mark.api_server


def manifest(spec: Spec, name: str = "orders-enricher") -> str:
    group = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
    return json.dumps(group)


def taken(cluster: Cluster, namespace: str, spec: Spec) -> Any:  # noqa: ANN401  as it comes
    """The spec as the API server keeps it."""
    made = cluster.kubectl("create", "-n", namespace, "-o", "json", "-f", "-", input=manifest(spec))
    return json.loads(made)["spec"]


def refusal(cluster: Cluster, *command: str, input: str | None = None) -> str:
    with pytest.raises(KubectlFailed) as refused:
        cluster.kubectl(*command, input=input)
    return str(refused.value)


@pytest.mark.parametrize("spec", [small(), whole()], ids=["small", "whole"])
def test_what_is_left_out_is_filled_in_with_the_same_values(
    api_server: Cluster, namespace: str, spec: Spec
) -> None:
    kept = taken(api_server, namespace, spec)
    assert kept == parse_spec(spec).model_dump(mode="json", by_alias=True, exclude_none=True)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.rule)
def test_a_broken_rule_is_refused_with_the_same_message(api_server: Cluster, broken: Broken) -> None:
    said = refusal(api_server, "create", "--dry-run=server", "-f", "-", input=manifest(broken.spec))
    assert f"{broken.path}: Invalid value" in said
    assert broken.message in said


@pytest.mark.parametrize(
    ("was", "patch", "message"),
    [
        ({}, {"groupId": "other"}, "must not change groupId"),
        ({"groupId": "one"}, {"groupId": None}, "must not change groupId"),
        ({"groupId": "one"}, {"groupId": "other"}, "must not change groupId"),
        ({}, {"coordination": "Kafka"}, "must not change coordination"),
    ],
)
def test_what_offsets_are_kept_under_cannot_be_changed(
    api_server: Cluster, namespace: str, was: Spec, patch: Spec, message: str
) -> None:
    taken(api_server, namespace, {**small(), **was})
    change = json.dumps({"spec": patch})
    group = "consumergroup/orders-enricher"
    assert message in refusal(api_server, "patch", "-n", namespace, group, "--type=merge", "-p", change)
    api_server.kubectl(
        "patch", "-n", namespace, group, "--type=merge", "-p", json.dumps({"spec": {"replicas": 5}})
    )


@pytest.mark.parametrize(
    "file", sorted((REPO / "examples").glob("*/*.yaml")), ids=lambda file: file.parent.name
)
def test_the_manifests_of_an_example_are_taken_as_they_stand(
    api_server: Cluster, namespace: str, file: Path
) -> None:
    # The namespace in them is another one, which need not be there to look at them.
    text = file.read_text().replace("namespace: shop", f"namespace: {namespace}")
    taken_as = api_server.kubectl("create", "--dry-run=server", "-f", "-", input=text)
    assert len(taken_as.splitlines()) == len(parse_documents(str(file), text))


def test_it_is_scaled_like_a_workload_and_shown_by_its_short_name(
    api_server: Cluster, namespace: str
) -> None:
    taken(api_server, namespace, small())
    api_server.kubectl("scale", "-n", namespace, "cg/orders-enricher", "--replicas=7")
    shown = api_server.kubectl("get", "-n", namespace, "cg", "-o", "jsonpath={.items[0].spec.replicas}")
    assert shown == "7"
    head = api_server.kubectl("get", "-n", namespace, "cg").splitlines()[0].split()
    assert head == [
        "NAME", "PHASE", "MEMBERS", "PARTITIONS", "LAG", "LAG-SECONDS", "READY", "DESIRED", "AGE",
    ]  # fmt: skip


def test_a_field_is_explained(api_server: Cluster) -> None:
    said = api_server.kubectl("explain", "consumergroup.spec.membership.sessionTimeoutSeconds")
    assert "A member that sends no heartbeat for this long is removed" in said
