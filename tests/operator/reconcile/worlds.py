"""A cluster for one ConsumerGroup, without a cluster: plans are performed on it as the shell would."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from rota_operator.reconcile import actions as do
from rota_operator.reconcile.decision import Decision
from rota_operator.reconcile.group import claim_of
from rota_operator.reconcile.observed import (
    Claim,
    DrainProgress,
    GroupStrategies,
    Observed,
    OperatorSettings,
    SparkObjects,
    WorkloadRef,
)
from rota_operator.reconcile.plan import plan
from tests.operator.reconcile.api_server import Json, Stored

SETTINGS = OperatorSettings(
    sidecar_image="rota-sidecar:1",
    fleet_address="rota-operator.rota:7083",
    authority="PEM",
    manages_spark=True,
)
ORDERS = WorkloadRef("Deployment", "orders")
UID = "0b9e"


def resource(**spec: Json) -> Json:
    """A small ConsumerGroup; None removes a field."""
    given = {
        "bootstrapServers": ["rota://rota:7070"],
        "topics": ["orders"],
        "scaleTargetRef": {"kind": "Deployment", "name": "orders"},
        **spec,
    }
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {
            "namespace": "shop",
            "name": "orders",
            "uid": UID,
            "generation": 1,
            "creationTimestamp": "2026-09-21T09:00:00Z",
        },
        "spec": {name: value for name, value in given.items() if value is not None},
    }


def workload(ref: WorkloadRef = ORDERS, /, **pod: Json) -> Json:
    """A workload of one container, as its owner applies it."""
    labels = {"app": ref.name}
    containers = [{"name": "app", "image": "shop:1", "env": [{"name": "COLOUR", "value": "green"}]}]
    return {
        "apiVersion": "apps/v1",
        "kind": ref.kind,
        "metadata": {"namespace": "shop", "name": ref.name, "labels": dict(labels)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": {"containers": containers, **copy.deepcopy(pod)},
            },
        },
    }


@dataclass
class World:
    """Invariant: what a plan has changed is seen by the next one."""

    group: Json = field(default_factory=resource)
    workloads: dict[WorkloadRef, Stored] = field(default_factory=lambda: {ORDERS: Stored(workload())})
    settings: OperatorSettings = SETTINGS
    version: tuple[int, int] = (1, 35)
    claims: tuple[Claim, ...] = ()
    config_map: Json = None
    budget: Json = None
    autoscalers: tuple[str, ...] = ()
    group_autoscalers: tuple[str, ...] = ()
    kafka_problem: str = ""
    missing_secrets: tuple[str, ...] = ()
    members: int | None = 0
    is_new: bool | None = False
    strategies: GroupStrategies = field(default_factory=GroupStrategies)
    # SparkApplications by name, and the pods of their drivers.
    applications: dict[str, Json] = field(default_factory=dict)
    drivers: tuple[Json, ...] = ()
    drains: dict[str, DrainProgress] = field(default_factory=dict)
    partitions: int | None = 3
    is_spark_served: bool = True
    deleted_groups: list[str] = field(default_factory=list)
    initial_commits: list[str] = field(default_factory=list)

    @property
    def target(self) -> Stored | None:
        ref = claim_of(self.group).target
        return None if ref is None else self.workloads.get(ref)

    def observed(self) -> Observed:
        adopted = [
            each.live
            for each in self.workloads.values()
            if each.live["metadata"].get("labels", {}).get(do.CLAIM_LABEL) == self.group["metadata"]["uid"]
        ]
        return Observed(
            resource=copy.deepcopy(self.group),
            settings=self.settings,
            version=self.version,
            target=None if self.target is None else self.target.live,
            adopted=tuple(adopted),
            claims=self.claims,
            config_map=copy.deepcopy(self.config_map),
            disruption_budget=copy.deepcopy(self.budget),
            autoscalers=self.autoscalers,
            group_autoscalers=self.group_autoscalers,
            kafka_problem=self.kafka_problem,
            missing_secrets=self.missing_secrets,
            members=self.members,
            is_new=self.is_new,
            strategies=self.strategies,
            spark=SparkObjects(
                self.is_spark_served,
                tuple(copy.deepcopy([*self.applications.values()])),
                self.drivers,
                dict(self.drains),
                self.partitions,
            ),
        )

    def plan(self) -> Decision:
        return plan(self.observed())

    def reconcile(self) -> Decision:
        """Plan, perform, write what the status pins."""
        decision = self.plan()
        for action in decision.actions:
            self.perform(action)
        pinned = {
            "groupId": decision.group_id,
            "coordination": decision.coordination,
            "sidecarImage": decision.sidecar_image,
            "selector": decision.selector,
        }
        self.group["status"] = {name: value for name, value in pinned.items() if value}
        return decision

    def edit(self, **spec: Json) -> None:
        """The user changes fields; None removes one."""
        for name, value in spec.items():
            self.group["spec"].pop(name, None)
            if value is not None:
                self.group["spec"][name] = value

    def delete(self) -> None:
        self.group["metadata"]["deletionTimestamp"] = "2026-09-21T10:00:00Z"

    def perform(self, action: do.Action) -> None:  # noqa: C901  one case for each action
        metadata = self.group["metadata"]
        match action:
            case do.AddFinalizer():
                metadata["finalizers"] = [do.FINALIZER]
            case do.RemoveFinalizer():
                del metadata["finalizers"]
            case do.ApplyConfigMap(_, data):
                self.config_map = {**self._owned(), "data": dict(data)}
            case do.AdoptWorkload(ref, fields, version, forced):
                self._checked(ref, version).apply(fields, forced)
            case do.RestoreGracePeriod(ref, seconds, version):
                path = ("spec", "template", "spec", "terminationGracePeriodSeconds")
                self._checked(ref, version).force(path, seconds, do.RESTORING_MANAGER)
            case do.ReleaseWorkload(ref, version):
                self._checked(ref, version).release()
            case do.ScaleWorkload(ref, replicas):
                self.workloads[ref].put(("spec", "replicas"), replicas, "scale")
            case do.ApplyDisruptionBudget(_, spec):
                self.budget = {**self._owned(), "spec": {**spec}}
            case do.DeleteDisruptionBudget():
                self.budget = None
            case do.CreateApplication(fields):
                self.applications[action.name] = self._owned_application(fields)
            case do.DrainDriver(_, _, uid, _):
                self.drains[uid] = DrainProgress(is_over=False)
            case do.DeleteApplication(_, name, uid, _):
                assert self.applications[name]["metadata"]["uid"] == uid, "another application of this name"
                del self.applications[name]
            case do.Configure():
                pass
            case do.CommitInitialOffsets(group_id):
                self.initial_commits.append(group_id)
                self.is_new = False
            case do.DeleteGroup(group_id):
                self.deleted_groups.append(group_id)
            case _:
                assert_never(action)

    def _checked(self, ref: WorkloadRef, version: str) -> Stored:
        found = self.workloads[ref]
        assert version in ("", found.live["metadata"]["resourceVersion"]), "decided on another state"
        return found

    def _owned(self) -> Json:
        owner = {"kind": "ConsumerGroup", "name": "orders", "uid": self.group["metadata"]["uid"]}
        return {"metadata": {"name": "rota-orders", "ownerReferences": [owner]}}

    def _owned_application(self, fields: Json) -> Json:
        metadata = {**fields["metadata"], **self._owned()["metadata"], "name": fields["metadata"]["name"]}
        uid = f"uid-{metadata['name']}-{metadata['annotations']['rota.dev/template-hash']}"
        return {**copy.deepcopy(fields), "metadata": {**metadata, "uid": uid}}

    def pod(self, ref: WorkloadRef = ORDERS) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.workloads[ref].live["spec"]["template"]["spec"]
        return found


def kinds(decision: Decision) -> list[str]:
    """Names of the actions."""
    return [type(action).__name__ for action in decision.actions]
