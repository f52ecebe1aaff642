"""Rights of the chart's service accounts equal a list, no user's Secrets among them, and Roles are enough for some namespaces."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.chart.granted import rights
from tests.chart.rendered import OPEN, SPARK, VARIANTS, of, of_kind
from tests.support import helm
from tests.support.cluster.rota_manifests import OWN_RULES, RULES, SPARK_RULES
from tests.support.helm import Object

pytestmark = pytest.mark.process

WANTED: Object = yaml.safe_load(Path(__file__).with_name("rights.yaml").read_text())
TOKENS = {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
ACCESS = {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}


@pytest.mark.parametrize(
    ("wanted", "variant"), [("cluster-wide", "values.yaml"), ("namespaced", "values-namespaced.yaml")]
)
def test_rights_equal_the_list(wanted: str, variant: str) -> None:
    found = {
        account: {
            where: {what: sorted(verbs) for what, verbs in whats.items()} for where, whats in wheres.items()
        }
        for account, wheres in rights(of(variant)).items()
    }
    assert found == WANTED[wanted]


def test_the_operator_has_the_rights_that_its_tests_run_with() -> None:
    found = rights(of("values.yaml"))["rota-operator"]
    tested: dict[str, set[str]] = defaultdict(set)
    for group, resources, verbs in (*RULES, *OWN_RULES):
        for resource in resources:
            tested[f"{group}/{resource}"] |= set(verbs)
    given: dict[str, set[str]] = defaultdict(set)
    for whats in found.values():
        for what, granted in whats.items():
            given[what.partition("=")[0]] |= granted
    assert given == tested


@pytest.mark.parametrize(
    ("variant", "namespaces"), [("values.yaml", ["all"]), ("values-namespaced.yaml", ["shop", "billing"])]
)
def test_rights_on_sparkapplications_are_given_on_demand(variant: str, namespaces: Sequence[str]) -> None:
    objects = helm.render(*VARIANTS[variant], *VARIANTS[SPARK])
    before, after = rights(of(variant))["rota-operator"], rights(objects)["rota-operator"]
    added = {
        where: {what: sorted(verbs) for what, verbs in whats.items() if what not in before[where]}
        for where, whats in after.items()
    }
    assert WANTED["spark"] == {
        f"{group}/{resource}": sorted(verbs) for group, [resource], verbs in SPARK_RULES
    }
    assert {where: whats for where, whats in added.items() if whats} == dict.fromkeys(
        namespaces, WANTED["spark"]
    )
    for rendered, expected in ((of(variant), False), (objects, True)):
        [operator] = [
            each for each in of_kind(rendered, "Deployment") if each["metadata"]["name"] == "rota-operator"
        ]
        [container] = operator["spec"]["template"]["spec"]["containers"]
        assert ("--spark" in container["args"]) is expected


@pytest.mark.parametrize("variant", VARIANTS)
def test_secrets_are_granted_by_name_alone(variant: str) -> None:
    for role in of_kind(of(variant), "Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            if "secrets" in rule["resources"]:
                assert role["kind"] == "Role"
                assert role["metadata"]["namespace"] == "rota"
                assert {"get", "patch"} == set(rule["verbs"])
                assert all(name.startswith("rota-") for name in rule["resourceNames"])


def test_some_namespaces_need_roles_only() -> None:
    assert of_kind(of("values-namespaced.yaml"), "ClusterRole", "ClusterRoleBinding") == []
    variant = of("two namespaces, cluster-wide token reviews")
    assert [each["rules"] for each in of_kind(variant, "ClusterRole")] == [[TOKENS], [ACCESS]]
    # The access of the page's readers is not the coordinator's to review.
    tokens, access = of_kind(variant, "ClusterRoleBinding")
    assert [each["name"] for each in tokens["subjects"]] == ["rota-operator", "rota-coordinator"]
    assert [each["name"] for each in access["subjects"]] == ["rota-operator"]


def test_without_the_page_no_access_is_reviewed() -> None:
    objects = helm.render("--set=operator.page.enabled=false")
    assert "authorization.k8s.io/subjectaccessreviews" not in rights(objects)["rota-operator"]["all"]
    (operator,) = of_kind(objects, "Deployment")
    assert "--page-listen=" in operator["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_coordinator_that_knows_no_pods_has_no_right() -> None:
    assert "rota-coordinator" in rights(of("values.yaml"))
    assert "rota-coordinator" not in rights(of(OPEN))


def test_without_rbac_there_is_no_role() -> None:
    objects = helm.render("--set=rbac.create=false")
    assert of_kind(objects, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding") == []


def test_every_subject_is_an_account_that_some_pod_has() -> None:
    objects = of("values.yaml")
    accounts = {each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")}
    subjects = {
        (subject["name"], subject["namespace"])
        for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
        for subject in binding["subjects"]
    }
    assert subjects == {(f"rota-{part}", "rota") for part in ("operator", "coordinator", "certificates")}
    assert {name for name, _ in subjects} <= accounts
