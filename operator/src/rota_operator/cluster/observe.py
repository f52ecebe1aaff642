"""
Reads the part of the cluster that one ConsumerGroup needs into an `Observed`. Called by the reconciler before each decision.

The resource and its objects are read from the API server, so that a decision never rests on a watch that lags behind our own
writes; other ConsumerGroups come from the index. That are seven small requests for one reconcile, however many groups there are;
the three of them that are lists are shared with other reconciles at the same time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.kafka_access import KafkaCredentials
from rota_operator.cluster.kinds import CONFIG_MAP, DISRUPTION_BUDGET, workload_kind
from rota_operator.cluster.pending_pods import pending_pods
from rota_operator.cluster.queues import Key
from rota_operator.cluster.refused_pods import refused_pods
from rota_operator.cluster.shared_reads import SharedReads
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.group import claim_of
from rota_operator.reconcile.observed import (
    GroupStrategies,
    Object,
    Observed,
    OperatorSettings,
    WorkloadRef,
)


class GroupStates(Protocol):
    """State of groups at their coordinators; None is unknown."""

    def members(self, key: Key) -> int | None:
        """Return the number of members."""
        ...

    def is_new(self, key: Key) -> bool | None:
        """Return whether the group has no committed offset at all."""
        ...

    def strategies(self, key: Key) -> GroupStrategies:
        """Return the assignment strategies of the group, and of its connected sidecars."""
        ...


class Surroundings(NamedTuple):
    """Everything an observation of a ConsumerGroup and of its group needs beside the API server."""

    resources: ResourceIndex
    groups: GroupStates
    reads: SharedReads
    # Of now: the authority may change.
    settings: Callable[[], OperatorSettings]
    version: tuple[int, int]
    # Of the operator: how groups are read that have no members.
    kafka: KafkaCredentials = KafkaCredentials()


async def observe(api: Api, around: Surroundings, key: Key, resource: Object) -> Observed:
    """Read the objects of a ConsumerGroup. Raises ApiError."""
    own = claim_of(resource)
    selector = f"{CLAIM_LABEL}={own.uid}"
    owned_name = f"rota-{key.name}"
    async with first_api_error(), asyncio.TaskGroup() as tasks:
        target = tasks.create_task(target_of(api, key, own.target))
        adopted = tasks.create_task(around.reads.adopted(key.namespace, own.uid))
        config_map = tasks.create_task(api.find(CONFIG_MAP, key.namespace, owned_name))
        budget = tasks.create_task(api.find(DISRUPTION_BUDGET, key.namespace, owned_name))
        autoscalers = tasks.create_task(autoscalers_of(around.reads, key, own.target))
        pending = tasks.create_task(pending_pods(api, key.namespace, selector, resource))
    return Observed(
        resource=resource,
        settings=around.settings(),
        version=around.version,
        target=target.result(),
        adopted=adopted.result(),
        claims=around.resources.rivals(own),
        config_map=config_map.result(),
        disruption_budget=budget.result(),
        autoscalers=autoscalers.result(),
        missing_secrets=pending.result().missing_secrets,
        pods_are_pending=pending.result().exist,
        refused_pods=await refused_pods(api, target.result()),
        members=around.groups.members(key),
        is_new=around.groups.is_new(key),
        strategies=around.groups.strategies(key),
    )


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


async def autoscalers_of(reads: SharedReads, key: Key, target: WorkloadRef | None) -> tuple[str, ...]:
    """Return the names of the HorizontalPodAutoscalers that scale the workload."""
    if target is None:
        return ()
    found = await reads.autoscalers(key.namespace)
    return tuple(each["metadata"]["name"] for each in found if scales(each, target))


def scales(autoscaler: Object, target: WorkloadRef) -> bool:
    """Return whether an autoscaler scales the workload."""
    reference = autoscaler["spec"]["scaleTargetRef"]
    return (reference.get("kind"), reference.get("name")) == tuple(target)
