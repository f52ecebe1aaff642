"""
Reads the part of the cluster that one ConsumerGroup needs into an `Observed`. Called by the reconciler before each decision.

Everything that is changed is read from the API server for that decision, so that no change rests on a watch that lags behind: seven
small requests for one reconcile, however many groups there are; the three of them that are lists are shared with other reconciles at
the same time. Other ConsumerGroups come from the index.

Most reconciles change nothing: a controller has counted pods. They observe the objects that a ConsumerGroup owns as
`owned_index` has them, and read the ConsumerGroup and its workload alone. The reconciler asks for a direct read where that
observation leads to a change.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from rota_operator.cluster.api import Api, loop_time
from rota_operator.cluster.errors import ApiError, NotFound
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.kafka_access import KafkaCredentials
from rota_operator.cluster.kinds import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    POD,
    SPARK_APPLICATIONS,
    workload_kind,
)
from rota_operator.cluster.owned_index import Owned, OwnedIndex, objects_name
from rota_operator.cluster.pending_pods import pending_pods
from rota_operator.cluster.queues import Key
from rota_operator.cluster.refused_pods import refused_pods
from rota_operator.cluster.shared_reads import KEPT_S, SharedReads, typed
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.group import claim_of, group_of, spark_version_of
from rota_operator.reconcile.observed import (
    DrainProgress,
    GroupStrategies,
    Object,
    Observed,
    OperatorSettings,
    SparkObjects,
    WorkloadRef,
)
from rota_operator.reconcile.scaling import autoscaler_name
from rota_operator.spec.validation import InvalidSpec


class GroupStates(Protocol):
    """State of groups at their coordinators; None is unknown."""

    def members(self, key: Key) -> int | None:
        """Return the number of members."""
        ...

    def is_new(self, key: Key) -> bool | None:
        """Return whether the group has no committed offset at all."""
        ...

    def partitions(self, key: Key) -> int | None:
        """Return the number of partitions that the group consumes."""
        ...

    def strategies(self, key: Key) -> GroupStrategies:
        """Return the assignment strategies of the group, and of its connected sidecars."""
        ...


class Surroundings(NamedTuple):
    """Everything an observation of a ConsumerGroup and of its group needs beside the API server."""

    resources: ResourceIndex
    groups: GroupStates
    reads: SharedReads
    owned: OwnedIndex
    # Of now: the authority may change.
    settings: Callable[[], OperatorSettings]
    version: tuple[int, int]
    # Of the operator: how groups are read that have no members.
    kafka: KafkaCredentials = KafkaCredentials()
    # Drains of a group's drivers, by the uid of the pod.
    drains: Callable[[Key], Mapping[str, DrainProgress]] = lambda _: {}


async def observe(
    api: Api, around: Surroundings, key: Key, resource: Object, known: Owned | None = None
) -> Observed:
    """Observe the objects of a ConsumerGroup: those that it owns as they are known, or as they are read now. Raises ApiError."""
    own = claim_of(resource)
    selector = f"{CLAIM_LABEL}={own.uid}"
    age_s_max = 0.0 if known is None else KEPT_S
    async with first_api_error(), asyncio.TaskGroup() as tasks:
        target = tasks.create_task(target_of(api, key, own.target))
        owned = tasks.create_task(owned_of(api, around, key, own.uid, known))
        autoscalers = tasks.create_task(autoscalers_of(around.reads, key, own.target, age_s_max))
        pending = tasks.create_task(pending_pods(api, key.namespace, selector, resource))
        spark = tasks.create_task(spark_objects(api, around, key, resource))
    adopted, config_map, budget = owned.result()
    on_target, on_group = autoscalers.result()
    return Observed(
        resource=resource,
        settings=around.settings(),
        version=around.version,
        target=target.result(),
        adopted=adopted,
        claims=around.resources.rivals(own),
        config_map=config_map,
        disruption_budget=budget,
        autoscalers=on_target,
        group_autoscalers=on_group,
        kafka_problem=kafka_problem(around.kafka, key, resource),
        missing_secrets=pending.result().missing_secrets,
        pods_are_pending=pending.result().exist,
        refused_pods=await refused_pods(api, target.result()),
        members=around.groups.members(key),
        is_new=around.groups.is_new(key),
        strategies=around.groups.strategies(key),
        spark=spark.result(),
    )


async def spark_objects(api: Api, around: Surroundings, key: Key, resource: Object) -> SparkObjects:
    """Read the SparkApplications of a ConsumerGroup that has them, and the pods of their drivers. Raises ApiError."""
    kind = SPARK_APPLICATIONS.get(spark_version_of(resource))
    if kind is None or not around.settings().manages_spark:
        return SparkObjects()
    selector = f"{CLAIM_LABEL}={resource['metadata']['uid']}"
    try:
        found = [typed(each, kind) async for each in api.list(kind, key.namespace, selector)]
    except NotFound:
        return SparkObjects(is_served=False)
    drivers = [each async for each in api.list(POD, key.namespace, selector)]
    return SparkObjects(
        applications=tuple(found),
        drivers=tuple(drivers),
        drains=around.drains(key),
        partitions=around.groups.partitions(key),
    )


async def owned_of(api: Api, around: Surroundings, key: Key, uid: str, known: Owned | None) -> Owned:
    """Return the objects that a ConsumerGroup owns: those that are known, or read them and take them over into the index. Raises ApiError."""
    if known is not None:
        return known
    around.owned.begin(key, uid, loop_time())
    async with first_api_error(), asyncio.TaskGroup() as tasks:
        adopted = tasks.create_task(around.reads.adopted(key.namespace, uid))
        config_map = tasks.create_task(api.find(CONFIG_MAP, key.namespace, objects_name(key)))
        budget = tasks.create_task(api.find(DISRUPTION_BUDGET, key.namespace, objects_name(key)))
    found = Owned(adopted.result(), config_map.result(), budget.result())
    around.owned.fill(key, found)
    return found


@asynccontextmanager
async def first_api_error() -> AsyncIterator[None]:
    """Raise the first ApiError of tasks that failed side by side; a group with any other error is raised as it is."""
    try:
        yield
    except ExceptionGroup as group:
        failed, others = group.split(ApiError)
        if failed is None or others is not None:
            raise
        raise failed.exceptions[0] from None


async def target_of(api: Api, key: Key, target: WorkloadRef | None) -> Object | None:
    """Read the workload that spec.scaleTargetRef names."""
    if target is None:
        return None
    return await api.find(workload_kind(target), key.namespace, target.name)


async def autoscalers_of(
    reads: SharedReads, key: Key, target: WorkloadRef | None, age_s_max: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the HorizontalPodAutoscalers of the workload and of the ConsumerGroup, as they were at most this long ago."""
    if target is None:
        return (), ()
    found = await reads.autoscalers(key.namespace, loop_time(), age_s_max)
    group = WorkloadRef(CONSUMER_GROUP.kind, key.name)
    on_target, on_group = (
        tuple(autoscaler_name(each) for each in found if scales(each, scaled)) for scaled in (target, group)
    )
    return on_target, on_group


def scales(autoscaler: Object, target: WorkloadRef) -> bool:
    """Return whether an autoscaler scales the workload."""
    reference = autoscaler["spec"]["scaleTargetRef"]
    return (reference.get("kind"), reference.get("name")) == tuple(target)


def kafka_problem(kafka: KafkaCredentials, key: Key, resource: Object) -> str:
    """Return why the operator cannot read the group's Kafka cluster itself; empty: it can, or no autoscaler may remove all members."""
    autoscaling = (resource.get("spec") or {}).get("autoscaling")
    if not isinstance(autoscaling, Mapping) or autoscaling.get("minReplicaCount") != 0:
        return ""
    try:
        group = group_of(resource)
    except InvalidSpec:
        return ""
    return kafka.access(group.spec, key.namespace, group.group_id).problem
