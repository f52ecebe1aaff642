"""A plan for a group with SparkApplications: what it needs, what it does first, and how it comes to rest, also when the group goes."""

from dataclasses import replace
from typing import Any

import pytest

from rota_operator.plan.supported import NOT_FOR_SPARK, SPARK_COMMIT_MODES
from rota_operator.reconcile import actions as do
from rota_operator.reconcile.decision import Decision
from rota_operator.reconcile.observed import Claim, DrainProgress
from rota_operator.reconcile.spark.kinds import APACHE, KINDS, KUBEFLOW
from rota_operator.spec.validation import Path, dotted
from tests.operator.plan.test_settings import OTHERS
from tests.operator.reconcile.spark.templates import spark_group, template
from tests.operator.reconcile.worlds import SETTINGS, UID, World, kinds
from tests.operator.spec.manifests import whole
from tests.operator.spec.test_validation import leaves

RUNNING = {
    KUBEFLOW: {"applicationState": {"state": "RUNNING"}},
    APACHE: {"currentState": {"currentStateSummary": "RunningHealthy"}},
}


def world(api_version: str = KUBEFLOW, /, **spec: Any) -> World:  # noqa: ANN401  fields of a group
    return World(spark_group(api_version, **spec), {})


def run(found: World, unready: str = "") -> None:
    """Every application runs, with a driver whose pod is ready, but for one."""
    for each in found.applications.values():
        each["status"] = RUNNING[each["apiVersion"]]
    found.drivers = tuple(driver(each) for each in found.applications)
    for pod in found.drivers:
        pod["status"]["conditions"] = [
            {"type": "Ready", "status": str(pod["metadata"]["name"] != f"{unready}-driver")}
        ]


def driver(application: str, **metadata: Any) -> Any:  # noqa: ANN401  a pod
    name = f"{application}-driver"
    labels = {"rota.dev/spark-application": application}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, **metadata},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def drain_all(found: World, problem: str = "") -> None:
    found.drains = {uid: DrainProgress(is_over=True, problem=problem) for uid in found.drains}


def remarks(decision: Decision) -> dict[str, str]:
    return {each.reason: each.message for each in decision.remarks}


@pytest.mark.parametrize("api_version", KINDS)
def test_a_group_gets_its_applications_and_comes_to_rest(api_version: str) -> None:
    found = world(api_version)
    decision = found.reconcile()
    assert kinds(decision) == ["AddFinalizer", "ApplyConfigMap", *["CreateApplication"] * 3, "Configure"]
    assert list(found.applications) == ["orders-0", "orders-1", "orders-2"]
    assert (decision.desired_replicas, decision.selector) == (3, f"rota.dev/consumer-group-uid={UID}")
    # As long as no Spark operator has seen them.
    assert remarks(decision) == {}
    unseen = f"orders-0 has no state yet: check that a Spark operator of {api_version} watches namespace shop"
    assert unseen in remarks(found.plan())["ApplicationState"]
    run(found)
    assert kinds(found.reconcile()) == ["Configure"]
    assert found.plan().remarks == ()


@pytest.mark.parametrize("api_version", KINDS)
def test_more_partitions_than_there_were_add_applications_and_fewer_drain_them_first(
    api_version: str,
) -> None:
    found = world(api_version)
    found.reconcile()
    found.partitions = 5
    assert kinds(found.reconcile()) == ["CreateApplication", "CreateApplication", "Configure"]
    run(found)
    found.group["spec"]["spark"]["partitionsPerApplication"] = 2
    decision = found.reconcile()
    assert [each for each in decision.actions if isinstance(each, do.DrainDriver)] == [
        do.DrainDriver(f"orders-{number}", f"orders-{number}-driver", f"uid-orders-{number}-driver", 45_000)
        for number in (3, 4)
    ]
    assert remarks(decision)["ApplicationsChanging"] == (
        "2 of 5 SparkApplications are more than the partitions need; they are drained and deleted"
    )
    assert kinds(found.reconcile()) == ["Configure"]
    drain_all(found)
    assert kinds(found.reconcile()) == ["DeleteApplication", "DeleteApplication", "Configure"]
    assert list(found.applications) == ["orders-0", "orders-1", "orders-2"]
    assert kinds(found.plan()) == ["Configure"]


@pytest.mark.parametrize("api_version", KINDS)
def test_a_change_of_the_template_replaces_one_drained_application_after_the_other(api_version: str) -> None:
    found = world(api_version)
    found.reconcile()
    run(found)
    changed = template(api_version)
    changed["sparkConf"] = {**changed.get("sparkConf", {}), "spark.app.version": "2"}
    found.group["spec"]["spark"]["template"]["spec"] = changed
    for number in range(3):
        name = f"orders-{number}"
        decision = found.reconcile()
        assert [each.application for each in decision.actions if isinstance(each, do.DrainDriver)] == [name]
        assert "have the former template" in remarks(decision)["ApplicationsChanging"]
        drain_all(found, "3 records are still in flight")
        deleted = [each for each in found.reconcile().actions if isinstance(each, do.DeleteApplication)]
        assert [(each.name, each.problem) for each in deleted] == [(name, "3 records are still in flight")]
        found.drains, found.drivers = {}, tuple(each for each in found.drivers if name not in str(each))
        assert kinds(found.reconcile()) == ["CreateApplication", "Configure"]
        if number < 2:
            assert remarks(found.plan())["ApplicationsChanging"] == (
                f"{2 - number} of 3 SparkApplications have the former template; waiting for {name}"
            )
            assert kinds(found.reconcile()) == ["Configure"]
            # Its Spark operator calls it running, and its query is not attached.
            run(found, unready=name)
            assert kinds(found.reconcile()) == ["Configure"]
        run(found)
    assert kinds(found.plan()) == ["Configure"]
    assert all("spark.app.version" in each["spec"]["sparkConf"] for each in found.applications.values())


def test_a_group_without_known_partitions_has_one_application_and_keeps_those_that_it_has() -> None:
    found = world()
    found.partitions = None
    decision = found.reconcile()
    assert list(found.applications) == ["orders-0"]
    assert remarks(decision)["ApplicationCount"] == (
        "the number of partitions is not known yet, so the number of SparkApplications stays at 1"
    )
    found.partitions = 3
    found.reconcile()
    found.partitions = None
    assert found.plan().desired_replicas == 3
    found.partitions = 1000
    assert remarks(found.plan())["ApplicationCount"] == (
        "1000 partitions need more than 100 SparkApplications, which is the maximum; raise spec.spark.partitionsPerApplication"
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("SUBMITTED", "orders-0 is SUBMITTED (said)"),
        ("PENDING_RERUN", "orders-0 is PENDING_RERUN (said)"),
        ("SUSPENDED", "orders-0 is SUSPENDED (said)"),
        (
            "COMPLETED",
            "orders-0 is COMPLETED (said): to keep it running, set restartPolicy.type to Always in spec.spark.template.spec",
        ),
        (
            "FAILED",
            "orders-0 is FAILED (said): see the log of its driver, and correct spec.spark.template.spec",
        ),
        (
            "NEW_STATE",
            "orders-0 is NEW_STATE (said), from which its stage is not known: see its Spark operator",
        ),
    ],
)
def test_what_does_not_run_is_named_with_its_state(state: str, expected: str) -> None:
    found = world()
    found.partitions = 1
    found.reconcile()
    found.applications["orders-0"]["status"] = {"applicationState": {"state": state, "errorMessage": "said"}}
    decision = found.plan()
    assert remarks(decision) == {"ApplicationState": expected}
    assert kinds(decision) == ["Configure"]


def test_no_more_than_five_are_named() -> None:
    found = world()
    found.partitions = 8
    found.reconcile()
    assert remarks(found.plan())["ApplicationState"].endswith("(and 3 more)")


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        (
            {"settings": replace(SETTINGS, manages_spark=False)},
            "UnsupportedField",
            "spec.spark.enabled needs an operator with rights on SparkApplications; set spark.enabled in the values of its chart",
        ),
        (
            {"is_spark_served": False},
            "SparkNotInstalled",
            f"spec.spark.apiVersion: the API server does not serve SparkApplications of {KUBEFLOW}; install their Spark operator",
        ),
        (
            {"group": spark_group(given=template(KUBEFLOW, image=None))},
            "InvalidSpec",
            "spec.spark.template.spec.image is required: the driver has no image; set it to an image with Spark and your code",
        ),
    ],
)
def test_what_a_group_needs_is_named_in_its_refusal(change: Any, reason: str, message: str) -> None:  # noqa: ANN401
    found = replace(world(), **change)
    refusal = found.plan().refusal
    assert refusal is not None
    assert (refusal.reason, refusal.message) == (reason, message)
    assert found.plan().actions == ()


def test_a_refused_template_leaves_the_applications_as_they_are() -> None:
    found = world()
    found.reconcile()
    before = dict(found.applications)
    found.group["spec"]["spark"]["template"]["spec"] = template(KUBEFLOW, image=None)
    assert found.reconcile().refusal is not None
    assert found.applications == before
    assert found.group["metadata"]["finalizers"] == [do.FINALIZER]


def test_a_name_that_is_too_long_for_the_objects_of_a_spark_operator_is_refused() -> None:
    found = world()
    found.group["metadata"]["name"] = "a" * 51
    refusal = found.plan().refusal
    assert refusal is not None
    assert refusal.message.startswith("metadata.name must have at most 50 characters")


def test_applications_of_others_are_left_alone() -> None:
    found = world()
    found.partitions = 1
    found.reconcile()
    one = found.applications["orders-0"]
    for name, owners in (("orders-7", []), ("orders-x", one["metadata"]["ownerReferences"])):
        found.applications[name] = {
            **one,
            "metadata": {**one["metadata"], "name": name, "ownerReferences": owners},
        }
    assert kinds(found.plan()) == ["Configure"]
    found.delete()
    assert [each.name for each in found.plan().actions if isinstance(each, do.DeleteApplication)] == [
        "orders-0"
    ]


@pytest.mark.parametrize("policy", ["RetainOffsets", "DeleteGroup"])
def test_a_deleted_group_goes_after_its_drained_applications(policy: str) -> None:
    found = world(deletionPolicy=policy)
    found.reconcile()
    run(found)
    found.delete()
    assert kinds(found.reconcile()) == ["DrainDriver"] * 3
    assert remarks(found.plan()) == {
        "ApplicationsChanging": "waiting until the SparkApplications are drained and deleted"
    }
    drain_all(found)
    assert kinds(found.reconcile()) == ["DeleteApplication"] * 3
    found.members = 3
    if policy == "DeleteGroup":
        assert kinds(found.reconcile()) == []
        found.members = 0
    found.reconcile()
    assert "finalizers" not in found.group["metadata"]
    assert found.deleted_groups == (["shop.orders"] if policy == "DeleteGroup" else [])


def test_a_deleted_group_with_an_invalid_spec_drains_as_well() -> None:
    found = world()
    found.partitions = 1
    found.reconcile()
    run(found)
    found.group["spec"]["topics"] = 7
    found.delete()
    assert kinds(found.reconcile()) == ["DrainDriver"]


def test_a_group_that_loses_its_group_id_drains_its_applications() -> None:
    found = world()
    found.reconcile()
    run(found)
    older = Claim("shop", "older", "0", "2020-01-01T00:00:00Z", None, "shop.orders", ("rota:7070",))
    found.claims = (older,)
    decision = found.reconcile()
    assert decision.refusal is not None
    assert (decision.refusal.reason, kinds(decision)) == ("GroupIdClaimed", ["DrainDriver"] * 3)
    drain_all(found)
    found.reconcile()
    assert found.applications == {}
    assert kinds(found.reconcile()) == ["RemoveFinalizer"]


def test_drivers_that_end_or_belong_to_another_application_are_not_drained() -> None:
    found = world()
    found.partitions = 0
    found.reconcile()
    found.partitions = 1
    found.reconcile()
    found.drivers = (
        driver("orders-0", deletionTimestamp="now"),
        {**driver("orders-0"), "status": {"phase": "Pending"}},
        driver("orders-1"),
        {"metadata": {"name": "executor", "uid": "x"}},
    )
    found.partitions = 0
    assert kinds(found.plan()) == ["DeleteApplication", "Configure"]


OF_SPARK = [
    path
    for path in leaves(whole())
    if path[0] in ("delivery", "replicas", "podDisruptionBudget", "autoscaling")
    or path == ("sidecar", "container")
    # With the mode, which is refused before it.
    if path != ("delivery", "http", "url")
]


@pytest.mark.parametrize("path", OF_SPARK, ids=dotted)
def test_a_field_that_means_nothing_for_spark_is_refused_with_its_path(path: Path) -> None:
    found = world()
    spec = found.group["spec"]
    if path == ("delivery", "mode"):
        spec["delivery"] = {"mode": "http", "http": {"url": "http://127.0.0.1/"}}
    else:
        part: Any = spec
        source: Any = whole()
        for name in path[:-1]:
            part, source = part.setdefault(name, {}), source[name]
        part[path[-1]] = OTHERS.get(path, source[path[-1]])
    refusal = found.plan().refusal
    assert refusal is not None
    assert refusal.reason == "UnsupportedField"
    # A budget is refused as a whole.
    named = path[:1] if path[0] == "podDisruptionBudget" else path[:2]
    assert refusal.message.startswith(f"spec.{dotted(named)}")


@pytest.mark.parametrize("mode", ["periodic", "sync", "transactional", "external"])
def test_a_driver_commits_itself(mode: str) -> None:
    refusal = world(offsets={"commit": {"mode": mode}}).plan().refusal
    expected = None if mode in SPARK_COMMIT_MODES else (
        f"spec.offsets.commit.mode must be one of external, sync for SparkApplications, whose drivers commit; got {mode}"
    )  # fmt: skip
    assert (None if refusal is None else refusal.message) == expected


def test_each_field_that_means_nothing_is_one_of_a_consumer_group() -> None:
    assert {path[: len(each)] for each in NOT_FOR_SPARK for path in leaves(whole())} >= NOT_FOR_SPARK.keys()
