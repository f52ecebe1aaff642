"""
A ConsumerGroup as the API server stores it, and an Event about it. Values that the status does not hold are None: unknown, never zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROTA_SCHEME = "rota://"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the status, as `metav1.Condition`."""

    type: str
    status: str
    reason: str
    message: str
    # RFC 3339; when `status` changed last.
    since: str


@dataclass(frozen=True, slots=True)
class Placement:
    """A member, as the status lists it."""

    pod: str
    member_id: str | None
    # Number of assigned partitions.
    partitions: int
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The last rebalance; None: unknown."""

    reason: str | None
    duration_ms: int | None
    moved_partitions: int | None


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A ConsumerGroup: its identity, what its spec asks for, and what the operator observed."""

    namespace: str
    name: str
    uid: str
    # Increased by each write.
    version: str
    # Increased by each edit of the spec.
    generation: int
    # Generation of the spec that the status is of; None: the operator has written no status.
    observed_generation: int | None
    spec: Mapping[str, Any]
    group_id: str | None = None
    phase: str | None = None
    coordination: str | None = None
    cluster_id: str | None = None
    sidecar_image: str | None = None
    selector: str | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    desired_replicas: int | None = None
    members: int | None = None
    partitions: int | None = None
    unowned_partitions: int | None = None
    # Generation of the group, increased by each rebalance.
    group_generation: int | None = None
    lag_records: int | None = None
    lag_records_max: int | None = None
    lag_seconds: int | None = None
    rebalance: Rebalance = Rebalance(None, None, None)
    scaling: Mapping[str, Any] = field(default_factory=dict)
    offset_reset: Mapping[str, Any] = field(default_factory=dict)
    placements: Sequence[Placement] = ()
    conditions: Sequence[Condition] = ()

    @property
    def full_name(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_static(self) -> bool:
        """True if the members are static."""
        return bool((self.spec.get("membership") or {}).get("static"))

    @property
    def image_asked(self) -> str | None:
        """Return the sidecar image of the spec; None: the operator chooses it."""
        return (self.spec.get("sidecar") or {}).get("image") or None

    def rota_command(self, command: str) -> str:
        """Return the command of `rota groups` that asks the group's servers themselves."""
        first, *rest = [str(each) for each in self.spec.get("bootstrapServers") or ("",)]
        servers = ",".join((first, *(each.removeprefix(ROTA_SCHEME) for each in rest)))
        said = f"rota groups {command} {self.group_id or 'GROUP'} --bootstrap-servers {servers}"
        coordinator = self.spec.get("coordinatorAddress")
        return f"{said} --coordinator-address {coordinator}" if coordinator else said

    def condition(self, kind: str) -> Condition | None:
        """Return a condition of the status."""
        return next((each for each in self.conditions if each.type == kind), None)


@dataclass(frozen=True, slots=True)
class Event:
    """An Event about a ConsumerGroup. `at` is when it was last seen, in RFC 3339; empty: not given."""

    at: str
    type: str
    reason: str
    message: str
    count: int


def parse_group(resource: Mapping[str, Any]) -> ConsumerGroup:
    """Read a ConsumerGroup; its schema has validated the types."""
    metadata, status = resource["metadata"], resource.get("status") or {}
    lag, rebalance = status.get("lag") or {}, status.get("rebalance") or {}
    return ConsumerGroup(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        generation=int(metadata.get("generation", 0)),
        observed_generation=status.get("observedGeneration"),
        spec=resource.get("spec") or {},
        group_id=status.get("groupId"),
        phase=status.get("phase"),
        coordination=status.get("coordination"),
        cluster_id=status.get("clusterId"),
        sidecar_image=status.get("sidecarImage"),
        selector=status.get("selector"),
        replicas=status.get("replicas"),
        ready_replicas=status.get("readyReplicas"),
        desired_replicas=status.get("desiredReplicas"),
        members=status.get("members"),
        partitions=status.get("partitions"),
        unowned_partitions=status.get("unownedPartitions"),
        group_generation=status.get("generation"),
        lag_records=lag.get("total"),
        lag_records_max=lag.get("max"),
        lag_seconds=lag.get("maxSeconds"),
        rebalance=Rebalance(
            rebalance.get("reason"), rebalance.get("durationMs"), rebalance.get("movedPartitions")
        ),
        scaling=status.get("scaling") or {},
        offset_reset=status.get("offsetReset") or {},
        placements=tuple(_placement(each) for each in status.get("placements") or ()),
        conditions=tuple(_condition(each) for each in status.get("conditions") or ()),
    )


def parse_event(resource: Mapping[str, Any]) -> Event:
    """Read an Event of the core API group."""
    at = resource.get("lastTimestamp") or resource.get("eventTime") or resource.get("firstTimestamp")
    return Event(
        str(at or ""),
        str(resource.get("type", "")),
        str(resource.get("reason", "")),
        str(resource.get("message", "")),
        int(resource.get("count") or 1),
    )


def _placement(each: Mapping[str, Any]) -> Placement:
    return Placement(
        str(each["podName"]), each.get("memberId") or None, int(each.get("partitions", 0)), each.get("lag")
    )


def _condition(each: Mapping[str, Any]) -> Condition:
    return Condition(
        str(each["type"]),
        str(each["status"]),
        str(each.get("reason", "")),
        str(each.get("message", "")),
        str(each.get("lastTransitionTime", "")),
    )
