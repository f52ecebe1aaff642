"""Actions become requests, in their order, and the first that fails stops the rest."""

from collections.abc import Callable, Sequence

import pytest
from typing_extensions import override

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import Conflict, Forbidden, Refused
from rota_operator.cluster.owned_index import Owned, OwnedIndex
from rota_operator.cluster.perform import Coordinators, Performer, Sidecars
from rota_operator.cluster.queues import Key
from rota_operator.reconcile.actions import (
    CLAIM_LABEL,
    FINALIZER,
    GRACE_PERIOD_FIELD,
    RESTORING_MANAGER,
    Action,
    AddFinalizer,
    AdoptWorkload,
    ApplyConfigMap,
    ApplyDisruptionBudget,
    CommitInitialOffsets,
    Configure,
    CreateApplication,
    DeleteApplication,
    DeleteDisruptionBudget,
    DeleteGroup,
    DrainDriver,
    ReleaseWorkload,
    RemoveFinalizer,
    RestoreGracePeriod,
    ScaleWorkload,
)
from rota_operator.reconcile.observed import Object, WorkloadRef
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, run, status, written

KEY = Key("shop", "orders")
RESOURCE: Object = {
    "metadata": {
        "namespace": "shop",
        "name": "orders",
        "uid": "u-1",
        "resourceVersion": "7",
        "finalizers": ["x/y"],
    }
}
WORKLOAD = WorkloadRef("Deployment", "enricher")
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/enricher"
ADOPT = AdoptWorkload(WORKLOAD, {"metadata": {"labels": {"a": "b"}}}, "41", (GRACE_PERIOD_FIELD,))


class Others(Coordinators, Sidecars):
    """Coordinators and sidecars that remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @override
    async def commit_initial_offsets(self, key: Key) -> None:
        self.asked.append(f"commit {key.name}")

    @override
    async def delete_group(self, key: Key) -> None:
        self.asked.append(f"delete {key.name}")

    @override
    def configure(self, key: Key, resource: Object, action: Configure) -> None:
        self.asked.append(f"configure {key.name} {action.settings} {action.settings_hash}")

    @override
    def drain_driver(self, key: Key, action: DrainDriver) -> None:
        self.asked.append(f"drain {key.name} {action.pod}")

    @override
    def forget(self, key: Key) -> None:
        raise AssertionError("not performed by actions")


def performed(
    actions: Sequence[Action],
    answer: Callable[[Sent], Answer] = lambda sent: written(sent) if sent.method == "PATCH" else Answer(),
    others: Others | None = None,
) -> tuple[list[Sent], list[Action]]:
    """The requests that these actions became, and the actions that succeeded."""
    server, done = ApiServer(answer), list[Action]()

    async def story(api: Api) -> None:
        performer = Performer(
            api, others or Others(), others or Others(), lambda _, action: done.append(action), OwnedIndex(1)
        )
        await performer.perform(KEY, RESOURCE, actions)

    run(server, story)
    return server.sent, done


def test_each_action_becomes_its_request_in_the_order_of_the_plan() -> None:
    others = Others()
    actions: list[Action] = [
        AddFinalizer(),
        ApplyConfigMap("rota-orders", {"settings.json": "{}"}),
        ADOPT,
        ApplyDisruptionBudget("rota-orders", {"maxUnavailable": 1}),
        DeleteDisruptionBudget("rota-orders"),
        CommitInitialOffsets("shop.orders"),
        ScaleWorkload(WORKLOAD, 3),
        Configure("shop.orders", "{}", "hash"),
        DeleteGroup("shop.orders"),
        RemoveFinalizer(),
    ]
    sent, done = performed(actions, others=others)
    group = "/apis/rota.dev/v1alpha1/namespaces/shop/consumergroups/orders"
    assert [(each.method, each.path) for each in sent] == [
        ("PATCH", group),
        ("PATCH", "/api/v1/namespaces/shop/configmaps/rota-orders"),
        ("PATCH", DEPLOYMENT),
        ("PATCH", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/rota-orders"),
        ("DELETE", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/rota-orders"),
        ("PATCH", f"{DEPLOYMENT}/scale"),
        ("PATCH", group),
    ]
    assert others.asked == ["commit orders", "configure orders {} hash", "delete orders"]
    assert done == actions


def test_the_finalizer_is_added_to_and_removed_from_the_others_in_the_version_that_was_observed() -> None:
    sent, _ = performed([AddFinalizer(), RemoveFinalizer()])
    assert [each.body["metadata"] for each in sent] == [
        {"finalizers": ["x/y", FINALIZER], "resourceVersion": "7"},
        {"finalizers": ["x/y"], "resourceVersion": "7"},
    ]


def test_an_owned_object_names_its_owner_and_carries_the_claim() -> None:
    [sent], _ = performed([ApplyConfigMap("rota-orders", {"a": "b"})])
    assert sent.body["data"] == {"a": "b"}
    assert sent.body["metadata"]["labels"] == {
        "rota.dev/consumer-group-uid": "u-1", "rota.dev/consumer-group": "orders",
    }  # fmt: skip
    [owner] = sent.body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ConsumerGroup", "orders", "u-1")


def field_conflict(*fields: str) -> Answer:
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl" using apps/v1', "field": each}
        for each in fields
    ]
    return status(409, "Conflict", "Apply failed", causes=causes)


def test_a_workload_is_adopted_without_force_in_the_version_that_was_observed() -> None:
    [sent], _ = performed([ADOPT])
    assert sent.query["force"] == "false"
    assert sent.body["metadata"] == {
        "labels": {"a": "b"}, "name": "enricher", "namespace": "shop", "resourceVersion": "41",
    }  # fmt: skip


def test_a_conflict_about_fields_that_may_be_forced_is_forced_in_the_same_version() -> None:
    sent, _ = performed(
        [ADOPT],
        lambda sent: written(sent) if sent.query["force"] == "true" else field_conflict(GRACE_PERIOD_FIELD),
    )
    assert [each.query["force"] for each in sent] == ["false", "true"]
    assert sent[0].body == sent[1].body


@pytest.mark.parametrize(
    "answer",
    [
        field_conflict(GRACE_PERIOD_FIELD, ".spec.template"),
        status(409, "Conflict", "the object has been modified"),
    ],
    ids=["another field", "another version"],
)
def test_any_other_conflict_is_reported_and_forces_nothing(answer: Answer) -> None:
    server = ApiServer(lambda sent: answer)

    async def story(api: Api) -> None:
        performer = Performer(api, Others(), Others(), lambda *_: None, OwnedIndex(1))
        with pytest.raises(Conflict):
            await performer.perform(KEY, RESOURCE, [ADOPT])

    run(server, story)
    assert [each.query["force"] for each in server.sent] == ["false"]


def test_a_release_applies_nothing_in_the_version_that_was_read_after_an_action_before_it() -> None:
    sent, _ = performed(
        [RestoreGracePeriod(WORKLOAD, 20, "41"), ReleaseWorkload(WORKLOAD, "")],
        lambda sent: (
            Answer(body={"metadata": {"resourceVersion": "42"}}) if sent.body is None else written(sent)
        ),
    )
    _, restore, _, release = sent
    # Under another manager: what Rota has set goes with the release.
    assert (restore.query["fieldManager"], restore.query["force"]) == (RESTORING_MANAGER, "true")
    assert restore.body == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 20}}},
        "metadata": {"name": "enricher", "namespace": "shop", "resourceVersion": "41"},
    }
    assert release.body == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "enricher", "namespace": "shop", "resourceVersion": "42"},
    }


def test_a_workload_that_is_gone_is_not_created_by_its_release() -> None:
    sent, done = performed(
        [RestoreGracePeriod(WORKLOAD, 20, "41"), ReleaseWorkload(WORKLOAD, "41")],
        lambda sent: status(404, "NotFound", "not found"),
    )
    assert [each.method for each in sent] == ["GET", "GET"]
    assert len(done) == 2


def test_the_first_failure_stops_the_rest() -> None:
    denied = 'User "operator" cannot patch resource "deployments" in API group "apps"'
    done: list[Action] = []
    server = ApiServer(lambda sent: status(403, "Forbidden", denied) if sent.path == DEPLOYMENT else Answer())

    async def story(api: Api) -> None:
        performer = Performer(api, Others(), Others(), lambda _, action: done.append(action), OwnedIndex(1))
        with pytest.raises(Forbidden):
            await performer.perform(KEY, RESOURCE, [AddFinalizer(), ADOPT, ScaleWorkload(WORKLOAD, 3)])

    run(server, story)
    assert len(server.sent) == 2
    assert done == [AddFinalizer()]


def test_the_index_has_what_was_written_in_the_version_of_the_answer_and_nothing_after_a_deletion() -> None:
    index = OwnedIndex(1.0)

    def known() -> list[tuple[str, str]] | None:
        index.settle(KEY)
        found = index.open(KEY, "u-1", 0.0)
        if found is None:
            return None
        bodies = [*found.adopted, *(each for each in found[1:] if each is not None)]
        return [(each["kind"], each["metadata"]["resourceVersion"]) for each in bodies]

    async def story(api: Api) -> None:
        performer = Performer(api, Others(), Others(), lambda *_: None, index)
        index.begin(KEY, "u-1", 0.0)
        index.fill(KEY, Owned((), None, None))
        adopt = AdoptWorkload(WORKLOAD, {"metadata": {"labels": {CLAIM_LABEL: "u-1"}}}, "7", ())
        for action, expected in (
            (ApplyConfigMap("rota-orders", {}), [("ConfigMap", "8")]),
            (adopt, [("Deployment", "8"), ("ConfigMap", "8")]),
            (ReleaseWorkload(WORKLOAD, "8"), [("ConfigMap", "8")]),
            (
                ApplyDisruptionBudget("rota-orders", {"maxUnavailable": 1}),
                [("ConfigMap", "8"), ("PodDisruptionBudget", "8")],
            ),
            (DeleteDisruptionBudget("rota-orders"), None),
        ):
            await performer.perform(KEY, RESOURCE, [action])
            assert known() == expected

    run(ApiServer(lambda sent: written(sent) if sent.method == "PATCH" else Answer()), story)


APPLICATION = CreateApplication(
    {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": {"name": "orders-0", "namespace": "shop", "annotations": {"a": "b"}},
        "spec": {"pyFiles": "main.py"},
    }
)
APPLICATIONS = "/apis/spark.apache.org/v1/namespaces/shop/sparkapplications"


def test_an_application_is_created_with_its_owner_drained_in_the_background_and_deleted_in_the_foreground() -> (
    None
):
    others = Others()
    drain = DrainDriver("orders-0", "orders-0-driver", "u-2", 45_000)
    delete = DeleteApplication("spark.apache.org/v1", "orders-0", "u-3")
    sent, done = performed([APPLICATION, drain, delete], lambda sent: Answer(body=sent.body), others)
    assert len(done) == 3
    assert others.asked == ["drain orders orders-0-driver"]
    created, deleted = sent
    assert (created.method, created.path) == ("POST", APPLICATIONS)
    assert created.body["spec"] == {"pyFiles": "main.py"}
    assert created.body["metadata"]["annotations"] == {"a": "b"}
    assert created.body["metadata"]["labels"][CLAIM_LABEL] == "u-1"
    [owner] = created.body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ConsumerGroup", "u-1", True)
    assert (deleted.method, deleted.path) == ("DELETE", f"{APPLICATIONS}/orders-0")
    assert deleted.body == {"propagationPolicy": "Foreground", "preconditions": {"uid": "u-3"}}


@pytest.mark.parametrize(
    ("owners", "error"),
    [([], Refused), ([{"uid": "other"}], Refused), ([{"uid": "u-1"}], Conflict), (None, Conflict)],
)
def test_an_application_of_another_owner_is_left_alone(
    owners: list[Object] | None, error: type[Exception]
) -> None:
    def answer(sent: Sent) -> Answer:
        if sent.method == "POST":
            return status(409, "AlreadyExists", "sparkapplications orders-0 already exists")
        found = {"metadata": {"name": "orders-0", "ownerReferences": owners}}
        return status(404, "NotFound", "gone") if owners is None else Answer(body=found)

    with pytest.raises(
        error, match="belongs to another owner; rename it" if error is Refused else "meanwhile"
    ):
        performed([APPLICATION], answer)
