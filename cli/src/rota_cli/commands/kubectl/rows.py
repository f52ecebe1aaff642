"""Output rows of ConsumerGroups, and the notes that explain what a row cannot hold."""

from collections.abc import Iterator, Mapping

from rota_cli.clusters.kubernetes.resource import Condition, ConsumerGroup, Placement
from rota_cli.output.render import Row
from rota_cli.output.units import pluralize

FIELDS = (
    "name", "group", "phase", "ready", "coordination", "cluster", "generation", "members", "partitions",
    "unowned_partitions", "lag_records", "lag_seconds", "replicas", "sidecar_image", "last_rebalance",
)  # fmt: skip
MEMBER_COLUMNS = ("pod", "member_id", "instance_id", "partitions", "lag_records")
LAG_COLUMNS = ("pod", "partitions", "lag_records")
CONDITION_COLUMNS = ("condition", "status", "reason", "since", "message")


def group_row(group: ConsumerGroup) -> Row:
    """Convert a ConsumerGroup into an output row."""
    ready, rebalance = group.condition("Ready"), group.rebalance
    return {
        "name": group.name,
        "namespace": group.namespace,
        "group": group.group_id,
        "phase": group.phase,
        "ready": None if ready is None else ready.status,
        "coordination": group.coordination,
        "cluster": group.cluster_id,
        "generation": group.group_generation,
        "members": group.members,
        "partitions": group.partitions,
        "unowned_partitions": group.unowned_partitions,
        "lag_records": group.lag_records,
        "lag_seconds": group.lag_seconds,
        "replicas": group.replicas,
        "ready_replicas": group.ready_replicas,
        "desired_replicas": group.desired_replicas,
        "sidecar_image": group.sidecar_image,
        "last_rebalance": {
            "reason": rebalance.reason,
            "duration_ms": rebalance.duration_ms,
            "moved_partitions": rebalance.moved_partitions,
        },
    }


def field_row(group: ConsumerGroup) -> Row:
    """Convert a ConsumerGroup into a row for people: one text for each field."""
    ready = group.condition("Ready")
    return {
        **group_row(group),
        "ready": None if ready is None else f"{ready.status} ({ready.reason})",
        "replicas": _describe_replicas(group),
        "last_rebalance": describe_rebalance(group),
    }


def member_row(placement: Placement, instances: Mapping[str, str]) -> Row:
    """Convert a member into an output row."""
    return {
        "pod": placement.pod,
        "member_id": placement.member_id,
        "instance_id": instances.get(placement.pod),
        "partitions": placement.partitions,
        "lag_records": placement.lag_records,
    }


def condition_row(condition: Condition) -> Row:
    """Convert a condition into an output row."""
    return {
        "condition": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "since": condition.since,
        "message": condition.message,
    }


def describe_rebalance(group: ConsumerGroup) -> str | None:
    """Describe the last rebalance in one line; None if nothing is known of it."""
    rebalance = group.rebalance
    details = [] if rebalance.duration_ms is None else [f"{rebalance.duration_ms} ms"]
    if rebalance.moved_partitions is not None:
        details.append(f"{pluralize(rebalance.moved_partitions, 'partition')} moved")
    if rebalance.reason is None and not details:
        return None
    return (rebalance.reason or "reason unknown") + (f" ({', '.join(details)})" if details else "")


def status_notes(group: ConsumerGroup) -> Iterator[str]:
    """Explain why a status may not be that of now."""
    if group.observed_generation is None:
        yield f"the operator has written no status of {group.full_name}: run `kubectl rota doctor {group.name} -n {group.namespace}`"
    elif group.observed_generation < group.generation:
        yield (
            f"the status is of generation {group.observed_generation} of the spec, and the newest is {group.generation}: "
            "the operator has not followed the last edit yet"
        )


def member_notes(group: ConsumerGroup) -> Iterator[str]:
    """Explain what a list of members cannot hold."""
    if group.members is not None and len(group.placements) < group.members:
        yield f"the status lists {len(group.placements)} of {pluralize(group.members, 'member')}"


def _describe_replicas(group: ConsumerGroup) -> str | None:
    if group.replicas is None:
        return None
    said = str(group.replicas)
    if group.ready_replicas is not None:
        said += f", {group.ready_replicas} ready"
    if group.desired_replicas is not None:
        said += f", {group.desired_replicas} desired"
    return said
