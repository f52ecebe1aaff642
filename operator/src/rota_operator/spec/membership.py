"""Fields `spec.membership` and `spec.assignment`: timeouts and identity of members, and how partitions are assigned to them."""

from typing import ClassVar

from pydantic import Field

from rota_operator.spec.names import OptionalLabelKey
from rota_operator.spec.scalars import PositiveInt, ShortText
from rota_operator.spec.schema import NEEDS_RESTART, SpecModel, ValidationRule

# Kafka's default limits: group.min.session.timeout.ms and group.max.session.timeout.ms.
SESSION_MIN_S, SESSION_MAX_S = 6, 1800


class Membership(SpecModel):
    """Timeouts and identity of the group's members."""

    session_timeout_seconds: int = Field(
        json_schema_extra=NEEDS_RESTART,
        default=45,
        ge=SESSION_MIN_S,
        le=SESSION_MAX_S,
        description="A member that sends no heartbeat for this long is removed from the group and its partitions are reassigned.",
    )
    heartbeat_interval_seconds: PositiveInt = Field(
        json_schema_extra=NEEDS_RESTART,
        default=3,
        description="The interval between a sidecar's heartbeats. At most one third of sessionTimeoutSeconds.",
    )
    rebalance_timeout_seconds: PositiveInt = Field(
        json_schema_extra=NEEDS_RESTART,
        default=300,
        description="The maximum time for members to rejoin once a rebalance has begun, including the time to finish records of "
        "revoked partitions. A member that exceeds it is removed from the group.",
    )
    processing_timeout_seconds: PositiveInt = Field(
        default=300,
        description="An application that returns no verdict on the records it holds for this long loses its partitions: the "
        "sidecar leaves the group until the application continues.",
    )
    static: bool = Field(
        json_schema_extra=NEEDS_RESTART,
        default=False,
        description="Use static membership: a replica has a group.instance.id (its name; in a Deployment one that the operator "
        "gives it), and keeps its partitions when it or its successor is back within the session timeout.",
    )
    rack_topology_key: OptionalLabelKey = Field(
        default="topology.kubernetes.io/zone",
        description="The node label whose value is passed to rack-aware strategies as client.rack.",
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.heartbeatIntervalSeconds * 3 <= self.sessionTimeoutSeconds",
            "must have a sessionTimeoutSeconds of at least three times heartbeatIntervalSeconds",
            lambda part: part.heartbeat_interval_seconds * 3 <= part.session_timeout_seconds,
        ),
    )

    @property
    def silence_ms_max(self) -> int:
        """Milliseconds without a heartbeat after which the coordinator removes a member."""
        return self.session_timeout_seconds * 1000


class Assignment(SpecModel):
    """Assignment of partitions to members."""

    strategy: ShortText = Field(
        default="cooperative-sticky",
        description="The partition assignment strategy: range, roundrobin, sticky, cooperative-sticky, load-aware-sticky, or the "
        "name of a rota.assignors entry point.",
    )
    max_moved_partitions_percent: int = Field(
        json_schema_extra=NEEDS_RESTART,
        default=100,
        ge=1,
        le=100,
        description="The maximum percentage of partitions that one rebalance moves, for strategies that support it.",
    )
