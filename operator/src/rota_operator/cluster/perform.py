"""
Performs the actions of a plan, one after the other, and stops at the first that fails. Called by the reconciler.

Each action becomes one request, or two: what the API server answers is raised as it is, and the next reconcile decides anew. Objects
that were written go into the index as the API server returns them, so that it lags behind no write of ours.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import Conflict, NotFound, Refused
from rota_operator.cluster.kinds import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    SPARK_APPLICATIONS,
    ResourceKind,
    workload_kind,
)
from rota_operator.cluster.owned_index import OwnedIndex
from rota_operator.cluster.queues import Key
from rota_operator.reconcile.actions import (
    CLAIM_LABEL,
    FIELD_MANAGER,
    FINALIZER,
    GROUP_LABEL,
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
from rota_operator.reconcile.observed import Object


class Coordinators(Protocol):
    """Changes of groups at their coordinators. Raise `engines.port.Unavailable`."""

    async def commit_initial_offsets(self, key: Key) -> None:
        """Commit the initial offsets of a group without members and offsets."""
        ...

    async def delete_group(self, key: Key) -> None:
        """Delete a group without members; no error if it does not exist."""
        ...


class Sidecars(Protocol):
    """Settings and instances of running sidecars."""

    def configure(self, key: Key, resource: Object, action: Configure) -> None:
        """Send the group's sidecars their settings in the background, and each its instance."""
        ...

    def drain_driver(self, key: Key, action: DrainDriver) -> None:
        """Order the sidecar of a driver to drain, in the background."""
        ...

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        ...


class Performer:
    """Performs actions for one ConsumerGroup at a time; `on_performed` is called after each that succeeded."""

    def __init__(
        self,
        api: Api,
        coordinators: Coordinators,
        sidecars: Sidecars,
        on_performed: Callable[[Object, Action], None],
        owned: OwnedIndex,
    ) -> None:
        self._api = api
        self._coordinators = coordinators
        self._sidecars = sidecars
        self._on_performed = on_performed
        self._owned = owned

    async def perform(self, key: Key, resource: Object, actions: Sequence[Action]) -> Object:
        """Perform all actions; returns the resource as they leave it. Raises ApiError, or Unavailable of a coordinator."""
        newest = resource
        for action in actions:
            newest = await self._perform(key, resource, action) or newest
            self._on_performed(resource, action)
        return newest

    async def _perform(self, key: Key, resource: Object, action: Action) -> Object | None:
        """Perform an action; returns the resource if it has written it."""
        match action:
            case AddFinalizer():
                return await self._set_finalizers(key, resource, add=True)
            case RemoveFinalizer():
                await self._set_finalizers(key, resource, add=False)
            case CommitInitialOffsets():
                await self._coordinators.commit_initial_offsets(key)
            case DeleteGroup():
                await self._coordinators.delete_group(key)
            case Configure():
                self._sidecars.configure(key, resource, action)
            case DrainDriver():
                self._sidecars.drain_driver(key, action)
            case CreateApplication() | DeleteApplication():
                await self._change_application(key, resource, action)
            case _:
                await self._change_object(key, resource, action)
        return None

    async def _change_object(
        self,
        key: Key,
        resource: Object,
        action: ApplyConfigMap
        | AdoptWorkload
        | RestoreGracePeriod
        | ReleaseWorkload
        | ScaleWorkload
        | ApplyDisruptionBudget
        | DeleteDisruptionBudget,
    ) -> None:
        match action:
            case ApplyConfigMap():
                fields = {**owned_by(resource), "data": dict(action.data)}
                await self._apply(CONFIG_MAP, key, action.name, fields)
            case ApplyDisruptionBudget():
                fields = {**owned_by(resource), "spec": action.spec}
                await self._apply(DISRUPTION_BUDGET, key, action.name, fields)
            case DeleteDisruptionBudget():
                await self._api.delete(DISRUPTION_BUDGET, key.namespace, action.name)
                # The answer names no version that what the watch shows could be compared with.
                self._owned.forget(key)
            case ScaleWorkload():
                kind, name = workload_kind(action.workload), action.workload.name
                await self._api.scale(kind, key.namespace, name, action.replicas)
            case AdoptWorkload():
                await self._adopt(key, action)
            case RestoreGracePeriod():
                await self._restore_grace_period(key, action)
            case ReleaseWorkload():
                await self._release(key, action)
            case _:
                assert_never(action)

    async def _change_application(
        self, key: Key, resource: Object, action: CreateApplication | DeleteApplication
    ) -> None:
        match action:
            case CreateApplication():
                await self._create_application(key, resource, action)
            case DeleteApplication():
                kind = SPARK_APPLICATIONS[action.api_version]
                options = {"propagationPolicy": "Foreground", "preconditions": {"uid": action.uid}}
                await self._api.delete(kind, key.namespace, action.name, options)
            case _:
                assert_never(action)

    async def _create_application(self, key: Key, resource: Object, action: CreateApplication) -> None:
        """Create an application. Raises Refused if one of another owner has its name."""
        kind = SPARK_APPLICATIONS[action.fields["apiVersion"]]
        metadata = {**action.fields["metadata"], **owned_by(resource)["metadata"]}
        try:
            await self._api.create(kind, key.namespace, {**action.fields, "metadata": metadata})
        except Conflict:
            found = await self._api.find(kind, key.namespace, action.name)
            owners = () if found is None else found["metadata"].get("ownerReferences") or ()
            if found is None or any(each["uid"] == resource["metadata"]["uid"] for each in owners):
                raise
            raise Refused(
                f"{kind.kind} {key.namespace}/{action.name} belongs to another owner; rename it, or this ConsumerGroup"
            ) from None

    async def _apply(
        self,
        kind: ResourceKind,
        key: Key,
        name: str,
        fields: Object,
        *,
        force: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> None:
        """Apply the fields, and take the object over into the index as the API server answers it."""
        written = await self._api.apply(kind, key.namespace, name, fields, force=force, manager=manager)
        self._owned.take(kind, written)

    async def _adopt(self, key: Key, action: AdoptWorkload) -> None:
        """Apply the fields; once more with force if only fields that may be forced conflict."""
        kind, name = workload_kind(action.workload), action.workload.name
        fields = of_version(action.fields, action.resource_version)
        try:
            await self._apply(kind, key, name, fields)
        except Conflict as conflict:
            if not conflict.fields or not set(conflict.fields) <= set(action.forced):
                raise
            await self._apply(kind, key, name, fields, force=True)

    async def _restore_grace_period(self, key: Key, action: RestoreGracePeriod) -> None:
        kind, name = workload_kind(action.workload), action.workload.name
        # An apply would create a workload that is gone.
        if await self._api.find(kind, key.namespace, name) is None:
            return
        spec = {"template": {"spec": {"terminationGracePeriodSeconds": action.seconds}}}
        fields = of_version({"spec": spec}, action.resource_version)
        await self._apply(kind, key, name, fields, force=True, manager=RESTORING_MANAGER)

    async def _release(self, key: Key, action: ReleaseWorkload) -> None:
        """Apply nothing. The workload is looked up first: an apply would create one that is gone."""
        kind, name = workload_kind(action.workload), action.workload.name
        found = await self._api.find(kind, key.namespace, name)
        if found is None:
            return
        version = action.resource_version or found["metadata"]["resourceVersion"]
        await self._apply(kind, key, name, of_version({}, version))

    async def _set_finalizers(self, key: Key, resource: Object, *, add: bool) -> Object:
        """Add or remove our finalizer, in the version that was observed: others may change the list too."""
        metadata = resource["metadata"]
        others = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        finalizers = [*others, FINALIZER] if add else others
        changes = of_version({"metadata": {"finalizers": finalizers}}, metadata["resourceVersion"])
        try:
            return await self._api.patch(CONSUMER_GROUP, *key, changes)
        except NotFound:
            if add:
                raise
            return resource


def of_version(fields: Object, resource_version: str) -> Object:
    """Bind a change to the version that it was decided on; the API server refuses it for another one."""
    metadata = {**fields.get("metadata", {}), "resourceVersion": resource_version}
    return {**fields, "metadata": metadata}


def owned_by(resource: Object) -> Object:
    """Return the metadata of an object that goes with its ConsumerGroup."""
    metadata = resource["metadata"]
    owner = {
        "apiVersion": CONSUMER_GROUP.api_version,
        "kind": CONSUMER_GROUP.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    labels = {CLAIM_LABEL: metadata["uid"], GROUP_LABEL: metadata["name"]}
    return {"metadata": {"labels": labels, "ownerReferences": [owner]}}
