"""
The settings that a consumer's own sidecar is started with; the base of `rota.consumer.options.Options`.

`validation.py` checks them before a sidecar is started, `child.py` writes them as flags of `python -m rota_sidecar`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rota.connection import Credentials


# Of the drain time: what is left of it is for the handlers.
SIDECAR_PART = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """Settings of the sidecar; None stands for the sidecar's own default."""

    # The group; a sidecar that is there already knows its own.
    group_id: str = ""
    # `rota://host:port` for Rota's log, `host:port` for Kafka: the consumer then starts a sidecar of its own.
    bootstrap_servers: str | Sequence[str] = ""
    # What people see of the consumer in tools and logs.
    client_id: str = "rota"
    # A clean end takes no longer: what handlers work on is finished, then the consumer's own sidecar commits and leaves.
    drain_timeout_ms: int = 45_000
    # Where to begin without a commit.
    auto_offset_reset: Literal["earliest", "latest", "none"] | None = None
    auto_commit_interval_ms: int | None = None
    isolation_level: Literal["read_uncommitted", "read_committed"] | None = None
    # How long records may be in the application's hands before others get its partitions.
    max_poll_interval_ms: int | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    # A static member: its partitions wait for it over a restart.
    group_instance_id: str | None = None
    # `range`, `roundrobin`, `sticky`, `cooperative-sticky`, `load-aware-sticky`, or one's own.
    partition_assignment_strategy: str | Sequence[str] | None = None
    # `rota` and an address where Rota coordinates groups over Kafka's records.
    coordination: Literal["auto", "kafka", "rota"] | None = None
    coordinator_address: str | None = None
    # Files: certificates, and a token for rota:// addresses.
    credentials: "Credentials | None" = None
    # The login to Kafka. Name and password go to the sidecar by its environment.
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    # Not shown where options are, as in the report of an exception.
    sasl_password: str | None = field(default=None, repr=False)
    # Further flags of `python -m rota_sidecar`.
    sidecar_flags: Sequence[str] = field(default_factory=tuple)

    @property
    def sidecar_drain_timeout_ms(self) -> int:
        """The part of the drain time that is the own sidecar's, after the application has detached."""
        return max(self.drain_timeout_ms // SIDECAR_PART, 1)


FLAGS: Mapping[str, str] = {
    "auto_offset_reset": "--initial-offset",
    "auto_commit_interval_ms": "--commit-interval-ms",
    "isolation_level": "--isolation-level",
    "max_poll_interval_ms": "--processing-timeout-ms",
    "session_timeout_ms": "--session-timeout-ms",
    "heartbeat_interval_ms": "--heartbeat-interval-ms",
    "group_instance_id": "--group-instance-id",
    "coordination": "--coordination",
    "coordinator_address": "--coordinator-address",
    "sasl_mechanism": "--sasl-mechanism",
}
"""Settings that a sidecar takes as they are."""

SIDECAR_SETTINGS = (
    *FLAGS,
    "partition_assignment_strategy",
    "credentials",
    "sasl_username",
    "sasl_password",
    "sidecar_flags",
)
