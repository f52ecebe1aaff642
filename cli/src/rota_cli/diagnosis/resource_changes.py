"""Describe the changes between two versions of a ConsumerGroup. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from rota_cli.clusters.kubernetes.resource import Condition, ConsumerGroup
from rota_cli.output.units import pluralize

UNKNOWN = "unknown"


def describe_first(now: ConsumerGroup | None) -> list[str]:
    """Describe the first version that was read; None: it does not exist."""
    if now is None:
        return ["consumergroup does not exist"]
    ready = now.condition("Ready")
    return [_describe_phase(now), *([] if ready is None else [describe_condition(ready)])]


def describe_resource_changes(before: ConsumerGroup | None, now: ConsumerGroup | None) -> list[str]:
    """Describe each change since the former version; None: it does not exist. Changes of the lag are not described."""
    if now is None:
        return [] if before is None else ["consumergroup deleted"]
    if before is None or before.uid != now.uid:
        return ["consumergroup created", *describe_first(now)]
    return [*_spec_changes(before, now), *_group_changes(before, now), *_condition_changes(before, now)]


def describe_condition(condition: Condition) -> str:
    """Describe a condition in one line."""
    message = f": {condition.message}" if condition.message else ""
    return f"{condition.type} is {condition.status} ({condition.reason}){message}"


def _spec_changes(before: ConsumerGroup, now: ConsumerGroup) -> Iterator[str]:
    if before.generation != now.generation:
        yield f"spec edited, generation {now.generation}"
    if before.sidecar_image != now.sidecar_image:
        yield f"sidecar image {before.sidecar_image or UNKNOWN} → {now.sidecar_image or UNKNOWN}"
    if before.desired_replicas != now.desired_replicas:
        yield f"desired replicas {_count(before.desired_replicas)} → {_count(now.desired_replicas)}"
    if now.offset_reset and before.offset_reset != now.offset_reset:
        yield describe_reset(now)


def _group_changes(before: ConsumerGroup, now: ConsumerGroup) -> Iterator[str]:
    if (before.phase, before.group_generation) != (now.phase, now.group_generation):
        yield _describe_phase(now)
    if before.rebalance != now.rebalance and now.rebalance.reason:
        yield f"last rebalance: {now.rebalance.reason}"
    # A list that is empty because nothing is known does not say that members have left.
    if now.members is not None and before.members is not None:
        yield from _member_changes(before, now)
    elif before.members != now.members:
        yield f"members {_count(before.members)} → {_count(now.members)}"
    if before.unowned_partitions != now.unowned_partitions:
        yield f"partitions without an owner {_count(before.unowned_partitions)} → {_count(now.unowned_partitions)}"


def _member_changes(before: ConsumerGroup, now: ConsumerGroup) -> Iterator[str]:
    members = {each.pod: each for each in now.placements}
    former = {each.pod: each for each in before.placements}
    for pod, member in members.items():
        if pod not in former:
            yield f"{pod} joined with {pluralize(member.partitions, 'partition')}"
        elif former[pod].partitions != member.partitions:
            yield f"{pod} {former[pod].partitions} → {pluralize(member.partitions, 'partition')}"
    yield from (f"{pod} left" for pod in former if pod not in members)


def _condition_changes(before: ConsumerGroup, now: ConsumerGroup) -> Iterator[str]:
    for condition in now.conditions:
        former = before.condition(condition.type)
        if former is None or (former.status, former.reason, former.message) != (
            condition.status,
            condition.reason,
            condition.message,
        ):
            yield describe_condition(condition)


def describe_decision(decision: Mapping[str, Any]) -> str:
    """Describe a decision of the autoscaler."""
    before, after = decision.get("replicas"), decision.get("recommendation")
    number = f"{before} replicas" if before == after else f"{before} to {after} replicas"
    dry_run = " (dry run)" if decision.get("dryRun") else ""
    return (
        f"{decision.get('time')}{dry_run}: {number}, {decision.get('reason')}: {decision.get('message', '')}"
    )


def describe_reset(group: ConsumerGroup) -> str:
    """Describe the reset of the status."""
    reset = group.offset_reset
    kind = "dry run of reset" if reset.get("dryRun") else "reset"
    plan = reset.get("planConfigMap")
    where = f", its plan is in the ConfigMap {plan}" if plan else ""
    return f"{kind} {reset.get('requestId', UNKNOWN)} is {reset.get('phase', UNKNOWN)}{where}"


def _describe_phase(group: ConsumerGroup) -> str:
    generation = "" if group.group_generation is None else f" in generation {group.group_generation}"
    return f"{group.phase or 'phase unknown'}{generation}"


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
