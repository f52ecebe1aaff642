"""A ConsumerGroup's plan: what is created, changed, released and deleted, in which order, and what is refused with its path."""

import copy
import json
from typing import Any

import pytest

from rota_operator.reconcile import actions as do
from rota_operator.reconcile.decision import Refusal
from rota_operator.reconcile.group import claim_of
from rota_operator.reconcile.instances import InstancePool
from rota_operator.reconcile.observed import WorkloadRef
from rota_operator.spec.conditions import Reason
from tests.operator.reconcile.api_server import ApplyConflict, Stored
from tests.operator.reconcile.worlds import ORDERS, SETTINGS, UID, World, kinds, resource, workload

Json = Any
AT_REST = ["Configure"]
PAYMENTS = WorkloadRef("StatefulSet", "payments")
KAFKA = {"bootstrapServers": ["kafka:9092"]}
LOGIN = {
    "sasl": {
        "mechanism": "SCRAM-SHA-512",
        "userSecret": {"name": "login", "key": "username"},
        "passwordSecret": {"name": "login", "key": "password"},
    }
}


def adopted(**spec: Json) -> World:
    world = World(resource(**spec))
    world.reconcile()
    assert kinds(world.plan()) == AT_REST
    return world


def refusal(world: World) -> Refusal:
    decision = world.plan()
    assert decision.refusal is not None
    assert not any(
        isinstance(each, do.AdoptWorkload | do.ScaleWorkload | do.Configure) for each in decision.actions
    )
    return decision.refusal


def test_a_new_group_gets_its_finalizer_before_anything_that_it_has_to_undo() -> None:
    world = World(resource(replicas=3, podDisruptionBudget={"maxUnavailable": 1}))
    decision = world.reconcile()
    assert kinds(decision) == [
        "AddFinalizer",
        "ApplyConfigMap",
        "AdoptWorkload",
        "ApplyDisruptionBudget",
        "ScaleWorkload",
        "Configure",
    ]
    assert (decision.group_id, decision.coordination) == ("shop.orders", "Rota")
    assert (decision.sidecar_image, decision.selector, decision.desired_replicas) == (
        "rota-sidecar:1",
        "app=orders",
        3,
    )
    assert decision.refusal is None


def test_a_plan_that_was_performed_is_at_rest() -> None:
    assert kinds(adopted(replicas=3, podDisruptionBudget={"maxUnavailable": "25%"}).plan()) == AT_REST


def test_an_interrupted_plan_is_continued() -> None:
    undisturbed = adopted(replicas=3)
    actions = World(resource(replicas=3)).plan().actions
    for performed in range(len(actions)):
        world = World(resource(replicas=3))
        for action in actions[:performed]:
            world.perform(action)
        world.reconcile()
        assert world.pod() == undisturbed.pod()
        assert world.config_map == undisturbed.config_map
        assert kinds(world.plan()) == AT_REST


@pytest.mark.parametrize(
    ("change", "actions"),
    [
        ({"topics": ["orders", "payments"]}, ["ApplyConfigMap", "Configure"]),
        ({"suspend": True}, ["ApplyConfigMap", "Configure"]),
        ({"assignment": {"strategy": "range"}}, ["ApplyConfigMap", "Configure"]),
        ({"delivery": {"retry": 1}}, ["ApplyConfigMap", "Configure"]),
        ({"membership": {"sessionTimeoutSeconds": 30}}, ["ApplyConfigMap", "AdoptWorkload", "Configure"]),
        ({"delivery": {"ordering": "key"}}, ["ApplyConfigMap", "AdoptWorkload", "Configure"]),
        ({"topics": ["payments"], "delivery": {"ordering": "key"}}, ["ApplyConfigMap", "AdoptWorkload", "Configure"]),
        ({"sidecar": {"terminationDrainSeconds": 60}}, ["AdoptWorkload", "Configure"]),
        ({"sidecar": {"image": "rota-sidecar:2"}}, ["AdoptWorkload", "Configure"]),
        ({"config": {"isolation.level": "read_committed"}}, ["AdoptWorkload", "Configure"]),
        ({"bootstrapServers": ["rota://other:7070"]}, ["AdoptWorkload", "Configure"]),
        ({"replicas": 4}, ["ScaleWorkload", "Configure"]),
        ({"replicas": None}, AT_REST),
        ({"podDisruptionBudget": {"maxUnavailable": 2}}, ["ApplyDisruptionBudget", "Configure"]),
        ({"podDisruptionBudget": None}, ["DeleteDisruptionBudget", "Configure"]),
        ({"monitoring": {"alerts": {"lagSeconds": 7}}}, AT_REST),
        ({"deletionPolicy": "DeleteGroup"}, AT_REST),
    ],
)  # fmt: skip
def test_an_edit_changes_what_it_has_to_and_rolls_the_pods_once_if_at_all(
    change: Json, actions: list[str]
) -> None:
    world = adopted(replicas=3, podDisruptionBudget={"maxUnavailable": 1})
    world.edit(**change)
    assert kinds(world.reconcile()) == actions
    assert kinds(world.plan()) == AT_REST


def test_suspending_and_resuming_are_settings_that_restart_no_pod() -> None:
    world = adopted()
    before = world.pod()
    for suspended in (True, False):
        world.edit(suspend=suspended)
        (*_, configure) = world.reconcile().actions
        assert isinstance(configure, do.Configure)
        assert json.loads(configure.settings).get("suspend", False) is suspended
        assert world.pod() == before


def test_an_order_goes_to_sidecars_of_the_same_hash_alone() -> None:
    world = adopted()
    hashes = set()
    for ordering in ("partition", "key"):
        world.edit(delivery={"ordering": ordering})
        (*_, configure) = world.reconcile().actions
        template = world.workloads[ORDERS].live["spec"]["template"]
        assert isinstance(configure, do.Configure)
        assert template["metadata"]["annotations"][do.SETTINGS_ANNOTATION] == configure.settings_hash
        hashes.add(configure.settings_hash)
    assert len(hashes) == 2


def test_the_workload_has_its_own_number_of_replicas_unless_the_spec_gives_one() -> None:
    world = adopted()
    world.workloads[ORDERS].put(("spec", "replicas"), 7)
    assert (kinds(world.plan()), world.plan().desired_replicas) == (AT_REST, 7)
    world.edit(replicas=2)
    assert do.ScaleWorkload(ORDERS, 2) in world.plan().actions


def test_a_foreign_autoscaler_is_named_and_not_fought_over() -> None:
    world = adopted()
    world.autoscalers = ("b", "a")
    world.edit(replicas=2)
    decision = world.plan()
    assert kinds(decision) == AT_REST
    (remark,) = decision.remarks
    assert (remark.condition, remark.reason) == ("ScalingActive", Reason.FOREIGN_AUTOSCALER)
    assert "a, b scales Deployment orders" in remark.message


def test_an_upgrade_of_the_operator_alone_rolls_nothing() -> None:
    world = adopted()
    world.settings = SETTINGS.__class__("rota-sidecar:9", SETTINGS.fleet_address, SETTINGS.authority)
    assert (kinds(world.plan()), world.plan().sidecar_image) == (AT_REST, "rota-sidecar:1")
    # Also if the operator ended before it had written the status.
    world.group["status"] = {}
    assert (kinds(world.plan()), world.plan().sidecar_image) == (AT_REST, "rota-sidecar:1")


def test_what_another_client_takes_away_is_put_back() -> None:
    world = adopted()
    before = world.pod()
    world.workloads[ORDERS].replace(workload())
    assert kinds(world.reconcile()) == ["AdoptWorkload", "Configure"]
    assert world.pod() == before
    world.config_map["data"]["settings.json"] = "{}"
    assert kinds(world.reconcile()) == ["ApplyConfigMap", "Configure"]


def test_a_conflict_is_reported_and_not_overridden() -> None:
    world = World(workloads={ORDERS: Stored(workload(terminationGracePeriodSeconds=300))})
    world.workloads[ORDERS].put(("metadata", "labels", do.CLAIM_LABEL), "theirs", "argocd")
    with pytest.raises(ApplyConflict) as conflict:
        world.reconcile()
    assert conflict.value.fields == [f".metadata.labels.{do.CLAIM_LABEL}"]


def test_the_workload_may_come_after_the_group_and_go_before_it() -> None:
    world = World(workloads={})
    assert refusal(world).reason == Reason.TARGET_NOT_FOUND
    assert world.reconcile().actions == ()
    world.workloads[ORDERS] = Stored(workload())
    assert "AdoptWorkload" in kinds(world.reconcile())
    del world.workloads[ORDERS]
    assert refusal(world).reason == Reason.TARGET_NOT_FOUND
    assert kinds(world.reconcile()) == ["RemoveFinalizer"]
    assert world.plan().group_id == "shop.orders"


def test_another_workload_is_adopted_once_the_first_one_is_released() -> None:
    world = adopted()
    owned = Stored(workload()).body
    world.workloads[PAYMENTS] = Stored(workload(PAYMENTS))
    world.edit(scaleTargetRef={"kind": "StatefulSet", "name": "payments"})
    assert kinds(world.reconcile()) == ["ReleaseWorkload", "AdoptWorkload", "Configure"]
    assert world.workloads[ORDERS].body == owned
    assert kinds(world.plan()) == AT_REST


def test_a_workload_is_released_also_if_its_successor_does_not_exist() -> None:
    world = adopted()
    world.edit(scaleTargetRef={"kind": "StatefulSet", "name": "payments"})
    assert kinds(world.plan()) == ["ReleaseWorkload", "RemoveFinalizer"]
    assert refusal(world).reason == Reason.TARGET_NOT_FOUND


def other(created: str, uid: str, name: str = "older", **spec: Json) -> Json:
    found = resource(**spec)
    found["metadata"] |= {"name": name, "uid": uid, "creationTimestamp": created}
    return found


OLDER, YOUNGER, SAME = "2026-09-21T08:00:00Z", "2026-09-21T10:00:00Z", "2026-09-21T09:00:00Z"


@pytest.mark.parametrize(
    ("rival", "reason"),
    [
        (other(OLDER, "1", groupId="another"), Reason.TARGET_CLAIMED),
        (other(YOUNGER, "1", groupId="another"), None),
        (other(SAME, "0000", groupId="another"), Reason.TARGET_CLAIMED),
        (other(SAME, "ffff", groupId="another"), None),
        (other(OLDER, "1", groupId="mine", scaleTargetRef={"name": "b"}), Reason.GROUP_ID_CLAIMED),
        (other(YOUNGER, "1", groupId="mine", scaleTargetRef={"name": "b"}), None),
        (other(OLDER, "1", groupId="mine", scaleTargetRef={"name": "b"}, bootstrapServers=["rota://b:1"]), None),
        (
            other(
                OLDER, "1", groupId="mine", scaleTargetRef={"name": "b"}, bootstrapServers=["rota://b:1", "rota://rota:7070"]
            ),
            Reason.GROUP_ID_CLAIMED,
        ),
        (other(OLDER, "1", groupId="another", scaleTargetRef={"name": "b"}), None),
        (other(OLDER, "1", groupId="another", topics=7), Reason.TARGET_CLAIMED),
    ],
)  # fmt: skip
def test_the_oldest_claim_wins_and_the_other_one_names_the_winner(rival: Json, reason: Reason | None) -> None:
    world = World(resource(groupId="mine"))
    world.claims = (claim_of(rival),)
    if reason is None:
        assert "AdoptWorkload" in kinds(world.plan())
    else:
        assert refusal(world).reason == reason
        assert "shop/older" in refusal(world).message


def test_workloads_of_the_same_name_in_two_namespaces_are_two() -> None:
    rival = other(OLDER, "1", groupId="another")
    rival["metadata"]["namespace"] = "other"
    world = World(claims=(claim_of(rival),))
    assert "AdoptWorkload" in kinds(world.plan())


def test_who_loses_a_claim_releases_what_it_has_and_deletes_no_group() -> None:
    world = adopted(groupId="mine", deletionPolicy="DeleteGroup")
    world.claims = (claim_of(other(OLDER, "1", groupId="mine", scaleTargetRef={"name": "b"})),)
    assert kinds(world.reconcile()) == ["ReleaseWorkload"]
    world.delete()
    assert kinds(world.reconcile()) == ["RemoveFinalizer"]
    assert world.deleted_groups == []


HOST_NETWORK = workload(hostNetwork=True)
NAMED_LIKE_OURS = workload(containers=[{"name": "rota-sidecar", "image": "a"}])
INITIALIZED_LIKE_OURS = workload(initContainers=[{"name": "rota-sidecar", "image": "a"}])


@pytest.mark.parametrize(
    ("target", "spec", "excerpt"),
    [
        (HOST_NETWORK, {}, "host network"),
        (NAMED_LIKE_OURS, {}, "has a container named rota-sidecar"),
        (INITIALIZED_LIKE_OURS, {}, "has an init container named rota-sidecar"),
        (workload(), {"sidecar": {"container": "worker"}}, "has no container worker; set spec.sidecar.container to one of: app"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_adopted_is_refused(target: Json, spec: Json, excerpt: str) -> None:
    world = World(resource(**spec), {ORDERS: Stored(target)})
    assert refusal(world).reason == Reason.INVALID_TARGET
    assert refusal(world).message.startswith("spec.scaleTargetRef: Deployment orders ")
    assert excerpt in refusal(world).message


@pytest.mark.parametrize(
    ("spec", "reason", "excerpt"),
    [
        ({"topics": [7]}, Reason.INVALID_SPEC, "spec.topics[0] must be a string"),
        ({"topics": [7], "replicas": "3"}, Reason.INVALID_SPEC, "(and 1 more)"),
        ({"topicPattern": "(", "topics": None}, Reason.INVALID_SPEC, "spec.topicPattern must be a regular expression"),
        ({"config": {"isolation.level": "none"}}, Reason.INVALID_SPEC, "spec.config.isolation.level must be one of"),
        ({"delivery": {"deadLetterTopic": "orders"}}, Reason.INVALID_SPEC, "spec.delivery.deadLetterTopic must not be one of"),
        ({"spark": {"partitionsPerApplication": 7}}, Reason.UNSUPPORTED_FIELD, "spec.spark.partitionsPerApplication has no effect without spark.enabled"),
        ({"config": {"fetch.min.bytes": "1"}}, Reason.UNSUPPORTED_FIELD, "spec.config.fetch.min.bytes applies to Kafka brokers only"),
        ({**KAFKA, "config": {"ssl.ca.location": "a"}}, Reason.UNSUPPORTED_FIELD, "spec.config.ssl.ca.location is set by the sidecar"),
        ({"auth": LOGIN}, Reason.UNSUPPORTED_FIELD, "spec.auth.sasl applies to Kafka brokers only"),
        ({"auth": {"tls": {}}}, Reason.UNSUPPORTED_FIELD, "spec.auth.tls applies to Kafka brokers only"),
        ({**KAFKA, "auth": {"sasl": {**LOGIN["sasl"], "mechanism": "GSSAPI"}}}, Reason.INVALID_SPEC, "spec.auth.sasl must set userSecret and passwordSecret with"),
        ({**KAFKA, "auth": {"sasl": {**LOGIN["sasl"], "mechanism": "OAUTHBEARER"}}}, Reason.INVALID_SPEC, "spec.auth.sasl must set userSecret and passwordSecret with"),
    ],
)  # fmt: skip
def test_a_spec_that_cannot_be_followed_is_refused_with_its_path_and_changes_nothing(
    spec: Json, reason: Reason, excerpt: str
) -> None:
    fresh = World(resource(**spec))
    assert (refusal(fresh).reason, excerpt in refusal(fresh).message) == (reason, True), refusal(fresh)
    world = adopted()
    before = copy.deepcopy(world.workloads[ORDERS].live)
    world.edit(**spec)
    assert world.reconcile().actions == ()
    assert world.workloads[ORDERS].live == before


@pytest.mark.parametrize(
    ("spec", "excerpt"),
    [
        ({"groupId": "another"}, "spec.groupId must not change from shop.orders to another"),
        ({"bootstrapServers": ["kafka:9092"]}, "spec.coordination must not change from Rota to Kafka"),
    ],
)
def test_what_is_immutable_is_compared_with_what_is_pinned(spec: Json, excerpt: str) -> None:
    world = adopted()
    world.edit(**spec)
    assert refusal(world).reason == Reason.IMMUTABLE_FIELD
    assert excerpt in refusal(world).message


def test_a_cluster_without_native_sidecars_is_refused() -> None:
    assert refusal(World(version=(1, 28))).reason == Reason.UNSUPPORTED_KUBERNETES


def test_a_name_that_is_no_label_is_refused() -> None:
    world = World()
    world.group["metadata"]["name"] = "a" * 64
    assert refusal(world).message.startswith("metadata.name must have at most 63 characters")


def test_a_missing_secret_is_named_as_long_as_the_spec_names_it() -> None:
    world = World(resource(**KAFKA, auth=LOGIN))
    world.missing_secrets = ("login/password", "other")
    assert refusal(world).reason == Reason.SECRET_NOT_FOUND
    assert "missing Secrets or keys: login/password; create them in namespace shop" in refusal(world).message
    world.missing_secrets = ("other",)
    assert world.plan().refusal is None


def test_objects_of_another_owner_keep_their_names() -> None:
    world = World(resource(podDisruptionBudget={"maxUnavailable": 1}))
    foreign = {"metadata": {"name": "rota-orders"}, "data": {}, "spec": {}}
    for name in ("config_map", "budget"):
        setattr(world, name, foreign)
        assert refusal(world).reason == Reason.NAME_TAKEN
        setattr(world, name, None)
    world.budget = foreign
    world.edit(podDisruptionBudget=None)
    assert "DeleteDisruptionBudget" not in kinds(world.plan())


def test_a_group_that_is_created_anew_under_its_name_takes_over_what_is_left() -> None:
    world = adopted(podDisruptionBudget={"maxUnavailable": 1})
    world.group = resource(podDisruptionBudget={"maxUnavailable": 1})
    world.group["metadata"]["uid"] = "next"
    assert kinds(world.reconcile()) == [
        "AddFinalizer",
        "ApplyConfigMap",
        "AdoptWorkload",
        "ApplyDisruptionBudget",
        "Configure",
    ]
    assert world.workloads[ORDERS].live["metadata"]["labels"][do.CLAIM_LABEL] == "next"
    assert kinds(world.plan()) == AT_REST


def test_deleting_a_group_gives_its_workload_back_and_keeps_its_offsets() -> None:
    world = adopted()
    world.delete()
    assert kinds(world.reconcile()) == ["ReleaseWorkload", "RemoveFinalizer"]
    assert world.workloads[ORDERS].body == Stored(workload()).body
    assert world.plan().actions == ()


def test_a_group_is_deleted_with_its_offsets_once_its_last_member_has_left() -> None:
    world = adopted(deletionPolicy="DeleteGroup")
    world.members = 0
    world.delete()
    decision = world.reconcile()
    assert kinds(decision) == ["ReleaseWorkload"]
    assert "until the workload is released" in decision.remarks[0].message
    for members, excerpt in (
        (None, "coordinator does not answer, so the group is not deleted yet"),
        (2, "2 members to leave"),
    ):
        world.members = members
        decision = world.plan()
        assert decision.actions == ()
        assert (decision.remarks[0].reason, excerpt in decision.remarks[0].message) == (
            Reason.WAITING_FOR_MEMBERS,
            True,
        )
    world.members = 0
    assert kinds(world.reconcile()) == ["DeleteGroup", "RemoveFinalizer"]
    assert world.deleted_groups == ["shop.orders"]


def test_a_group_that_never_ran_goes_at_once() -> None:
    world = World(workloads={})
    world.delete()
    assert world.plan().actions == ()


def test_a_deleted_group_with_an_invalid_spec_is_undone_too() -> None:
    world = adopted(deletionPolicy="DeleteGroup")
    world.edit(topics=7)
    world.delete()
    world.reconcile()
    assert kinds(world.reconcile()) == ["DeleteGroup", "RemoveFinalizer"]


@pytest.mark.parametrize("spec", [{}, KAFKA])
def test_a_group_without_pods_gets_its_initial_offsets_where_the_operator_sees_that_it_has_no_members(
    spec: Json,
) -> None:
    world = World(resource(replicas=0, **spec), is_new=True, members=0)
    assert "CommitInitialOffsets" in kinds(world.reconcile())
    assert kinds(world.plan()) == AT_REST


@pytest.mark.parametrize(
    ("spec", "is_new", "members", "remarks"),
    [
        ({"replicas": 0}, None, 0, [Reason.NO_INITIAL_OFFSETS]),
        ({"replicas": 0, **KAFKA}, True, None, [Reason.NO_INITIAL_OFFSETS]),
        ({"replicas": 0, **KAFKA}, False, 0, []),
        ({"replicas": 0, "offsets": {"initialOffset": "none"}}, True, 0, []),
        ({"replicas": 1}, True, 0, []),
        ({"replicas": 0}, True, 1, []),
        ({"replicas": 0}, True, None, []),
    ],
)
def test_it_gets_none_otherwise_and_says_so_where_one_may_be_missing(
    spec: Json, is_new: bool | None, members: int | None, remarks: list[Reason]
) -> None:
    world = World(resource(**spec), is_new=is_new, members=members)
    decision = world.plan()
    assert "CommitInitialOffsets" not in kinds(decision)
    assert [remark.reason for remark in decision.remarks] == remarks


def test_the_uid_stands_on_workload_template_and_pods() -> None:
    world = adopted()
    live = world.workloads[ORDERS].live
    for metadata in (live["metadata"], live["spec"]["template"]["metadata"]):
        assert metadata["labels"] == {"app": "orders", do.CLAIM_LABEL: UID, do.GROUP_LABEL: "orders"}


@pytest.mark.parametrize(
    ("amount", "is_valid"),
    [("50m", True), ("64Mi", True), ("1e3", True), (".5", True), ("7q", False), ("much", False)],
)
def test_an_amount_that_is_no_quantity_is_refused_with_its_path(amount: str, *, is_valid: bool) -> None:
    decision = World(resource(sidecar={"resources": {"requests": {"cpu": amount}}})).plan()
    if is_valid:
        assert decision.refusal is None
    else:
        assert decision.refusal is not None
        assert decision.refusal.reason == Reason.INVALID_SPEC
        assert decision.refusal.message.startswith("spec.sidecar.resources.requests.cpu must be a quantity")


def test_static_members_of_a_deployment_get_instances_of_their_group() -> None:
    def pools(world: World) -> list[InstancePool | None]:
        return [each.pool for each in world.plan().actions if isinstance(each, do.Configure)]

    static = {"static": True, "sessionTimeoutSeconds": 60}
    assert pools(World(resource(membership=static, replicas=4))) == [
        InstancePool("orders", 4, 60_000, 60_000)
    ]
    assert pools(World(resource())) == [None]


def test_an_autoscaler_of_the_workload_has_no_more_pods_than_static_members_have_instances() -> None:
    static = {"static": True, "sessionTimeoutSeconds": 60}
    world = World(resource(membership=static, replicas=2), autoscalers=("pods",))
    world.workloads[ORDERS].put(("spec", "replicas"), 5)
    decision = world.plan()
    assert decision.desired_replicas == 5
    assert [each.pool for each in decision.actions if isinstance(each, do.Configure)] == [
        InstancePool("orders", 5, 60_000, 60_000)
    ]
