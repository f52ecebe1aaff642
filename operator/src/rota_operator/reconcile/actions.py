"""
Actions of a plan. The shell performs actions one after the other and stops at the first that fails.

Each action is idempotent: performing it again after a crash changes nothing more. Each carries what its request needs,
resource versions included, so that a decision on outdated state is refused by the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rota_operator.reconcile.instances import InstancePool
from rota_operator.reconcile.observed import Object, WorkloadRef
from rota_operator.reconcile.successions import MemberPool

# Of every server-side apply.
FIELD_MANAGER = "rota"
# Of the owner's grace period, which stays when Rota's own fields go.
RESTORING_MANAGER = "rota-restored"
GROUP = "rota.dev"
# On the ConsumerGroup, while something has to be undone before it may go.
FINALIZER = "rota.dev/release"
# On a workload, its pod template and its pods: the uid of the ConsumerGroup that adopted it, and its name.
CLAIM_LABEL = "rota.dev/consumer-group-uid"
GROUP_LABEL = "rota.dev/consumer-group"
# On a pod template: changes when a setting changes that only a restart applies.
SETTINGS_ANNOTATION = "rota.dev/settings-hash"
# On a workload whose `terminationGracePeriodSeconds` Rota has raised: its value before.
GRACE_PERIOD_ANNOTATION = "rota.dev/grace-period-before"
# As the API server names it in a conflict.
GRACE_PERIOD_FIELD = ".spec.template.spec.terminationGracePeriodSeconds"


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Add the finalizer to the ConsumerGroup, before anything is done that it has to undo."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove the finalizer: nothing is left to undo."""


@dataclass(frozen=True, slots=True)
class ApplyConfigMap:
    """Server-side apply of the ConfigMap `rota-<name>`, which sidecars read when they start."""

    name: str
    data: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AdoptWorkload:
    """
    Server-side apply, without force, of the fields of a workload that Rota owns. A conflict is reported, not overridden.

    If all conflicts that the API server names are about fields in `forced`, the same request is sent again with force: the
    resource version in it excludes that another conflict has appeared in between. One request means one rollout.
    """

    workload: WorkloadRef
    # The whole body of the request but for the resource version.
    fields: Object
    # Goes into `metadata.resourceVersion`: a workload that has changed since, or is another one by now, is left alone.
    resource_version: str
    # As in the `field` of the causes of a conflict.
    forced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreGracePeriod:
    """
    Server-side apply of `terminationGracePeriodSeconds` as its owner has set it, with force, under RESTORING_MANAGER.

    Performed before Rota gives up the field, which would leave the default where Rota alone has set it.
    """

    workload: WorkloadRef
    seconds: int
    resource_version: str


@dataclass(frozen=True, slots=True)
class ReleaseWorkload:
    """
    Server-side apply of nothing, which removes all fields of ours from a workload; a no-op if it is gone.

    The resource version is empty where an action before has changed the workload.
    """

    workload: WorkloadRef
    resource_version: str


@dataclass(frozen=True, slots=True)
class ScaleWorkload:
    """Merge patch of the workload's `scale` subresource."""

    workload: WorkloadRef
    replicas: int


@dataclass(frozen=True, slots=True)
class ApplyDisruptionBudget:
    """Server-side apply of the PodDisruptionBudget `rota-<name>`, owned by the ConsumerGroup."""

    name: str
    spec: Object


@dataclass(frozen=True, slots=True)
class DeleteDisruptionBudget:
    """Delete the PodDisruptionBudget `rota-<name>`."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateApplication:
    """Create a SparkApplication, owned by the ConsumerGroup; one of another owner is left alone, and reported."""

    # The whole body but for the owner.
    fields: Object

    @property
    def name(self) -> str:
        """Name of the application."""
        name: str = self.fields["metadata"]["name"]
        return name


@dataclass(frozen=True, slots=True)
class DrainDriver:
    """
    Order the sidecar of an application's driver to drain, in the background; its answer causes another plan.

    The drain expires by itself, so that an operator that is killed leaves no driver drained.
    """

    application: str
    pod: str
    uid: str
    within_ms: int


@dataclass(frozen=True, slots=True)
class DeleteApplication:
    """Delete a SparkApplication in the foreground: it is gone once its pods are."""

    api_version: str
    name: str
    # Another application of this name is left alone.
    uid: str
    # Why the driver's drain has failed: records in flight are delivered again; empty: it has not.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Configure:
    """
    Send the settings to all sidecars of the group that were started with this hash; each applies them whole or not at all.

    Stands in every plan of an adopted workload: the shell sends it to each sidecar once, and again to one that reconnects
    without having answered. Pods with another hash are left alone, because a rollout is about to replace them.
    """

    group_id: str
    # JSON of a GroupSettings message.
    settings: str
    settings_hash: str
    # Whence the sidecars of static members get their instances; None: they have them by their pods' names, or are dynamic.
    pool: InstancePool | None = None
    # How many members the operator orders to join; None: they join by themselves, or are static.
    member_pool: MemberPool | None = None


@dataclass(frozen=True, slots=True)
class CommitInitialOffsets:
    """Commit the initial offsets of a group without members and offsets, so that no record before its first member is lost."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete the group at its coordinator; its last member has left."""

    group_id: str


Action: TypeAlias = (
    AddFinalizer
    | RemoveFinalizer
    | ApplyConfigMap
    | AdoptWorkload
    | RestoreGracePeriod
    | ReleaseWorkload
    | ScaleWorkload
    | ApplyDisruptionBudget
    | DeleteDisruptionBudget
    | CreateApplication
    | DrainDriver
    | DeleteApplication
    | Configure
    | CommitInitialOffsets
    | DeleteGroup
)
