"""
Settings of a consumer's own sidecar; the base of `rota.consumer.options.Options`.

`validation.py` checks them before a sidecar is started, `sidecar_process.py` passes them as flags of `python -m rota_sidecar`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rota.security import SecurityOptions

# The sidecar's share of the drain time; the rest is for the handlers.
SIDECAR_PART = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions(SecurityOptions):
    """Settings of the sidecar; None stands for the sidecar's own default."""

    # The group; a running sidecar has its own.
    group_id: str = ""
    # `rota://host:port` for Rota's log, `host:port` for Kafka: the consumer then starts a sidecar of its own.
    bootstrap_servers: str | Sequence[str] = ""
    # Name of the consumer in tools and logs.
    client_id: str = "rota"
    # Time limit of a clean shutdown: handlers finish records in flight, then the consumer's own sidecar
    # commits and leaves.
    drain_timeout_ms: int = 45_000
    # Rack of this process, for rack-aware strategies.
    client_rack: str | None = None
    # Start position of a partition without a committed offset.
    auto_offset_reset: Literal["earliest", "latest", "none"] | None = None
    # Commit the records of a poll when the application polls again. Otherwise only `commit` and
    # `commit_async` commit; a running sidecar learns it from the application.
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int | None = None
    isolation_level: Literal["read_uncommitted", "read_committed"] | None = None
    # Limits of the sidecar's fetches: bytes that the server waits for, at most `fetch_max_wait_ms`; bytes of a
    # response, and of a partition in it.
    fetch_min_bytes: int | None = None
    fetch_max_bytes: int | None = None
    fetch_max_wait_ms: int | None = None
    max_partition_fetch_bytes: int | None = None
    # Interval between lookups of topics and partitions.
    metadata_max_age_ms: int | None = None
    # Timeout of a request to the servers, and the delays before it is sent again.
    request_timeout_ms: int | None = None
    retry_backoff_ms: int | None = None
    retry_backoff_max_ms: int | None = None
    # For connections to Kafka.
    reconnect_backoff_ms: int | None = None
    reconnect_backoff_max_ms: int | None = None
    connections_max_idle_ms: int | None = None
    # Maximum time for which records may be in flight before the application loses its partitions.
    max_poll_interval_ms: int | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    # Makes the member static: it keeps its partitions over a restart.
    group_instance_id: str | None = None
    # `range`, `roundrobin`, `sticky`, `cooperative-sticky`, `load-aware-sticky`, or the name of a custom
    # strategy.
    partition_assignment_strategy: str | Sequence[str] | None = None
    # `rota` and an address if Rota coordinates groups whose records are in Kafka.
    coordination: Literal["auto", "kafka", "rota"] | None = None
    coordinator_address: str | None = None
    # The login by Kerberos (GSSAPI): the service name in the brokers' principals, this client's principal, and its
    # keytab, without which the tickets are those of the credential cache.
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_principal: str | None = None
    sasl_kerberos_keytab: str | None = None
    # Further flags of `python -m rota_sidecar`.
    sidecar_flags: Sequence[str] = field(default_factory=tuple)

    @property
    def sidecar_drain_timeout_ms(self) -> int:
        """The sidecar's part of the drain time, after the application has detached."""
        return max(self.drain_timeout_ms // SIDECAR_PART, 1)


FLAGS: Mapping[str, str] = {
    "client_rack": "--rack",
    "auto_offset_reset": "--initial-offset",
    "auto_commit_interval_ms": "--commit-interval-ms",
    "isolation_level": "--isolation-level",
    "fetch_min_bytes": "--fetch-min-bytes",
    "fetch_max_bytes": "--fetch-max-bytes",
    "fetch_max_wait_ms": "--fetch-max-wait-ms",
    "max_partition_fetch_bytes": "--ahead-bytes-max",
    "metadata_max_age_ms": "--topics-refresh-ms",
    "request_timeout_ms": "--request-timeout-ms",
    "retry_backoff_ms": "--retry-backoff-ms",
    "retry_backoff_max_ms": "--retry-backoff-max-ms",
    "max_poll_interval_ms": "--processing-timeout-ms",
    "session_timeout_ms": "--session-timeout-ms",
    "heartbeat_interval_ms": "--heartbeat-interval-ms",
    "group_instance_id": "--group-instance-id",
    "coordination": "--coordination",
    "coordinator_address": "--coordinator-address",
    "sasl_mechanism": "--sasl-mechanism",
    "sasl_oauthbearer_token_endpoint_url": "--sasl-oauthbearer-token-endpoint-url",
    "sasl_oauthbearer_client_id": "--sasl-oauthbearer-client-id",
    "sasl_oauthbearer_scope": "--sasl-oauthbearer-scope",
    "sasl_oauthbearer_cafile": "--sasl-oauthbearer-tls-ca",
    "sasl_kerberos_service_name": "--sasl-kerberos-service-name",
    "sasl_kerberos_principal": "--sasl-kerberos-principal",
    "sasl_kerberos_keytab": "--sasl-kerberos-keytab",
}
"""Settings that become flags."""

PROPERTIES: Mapping[str, str] = {
    "max_partition_fetch_bytes": "fetch.message.max.bytes",
    "request_timeout_ms": "socket.timeout.ms",
    "reconnect_backoff_ms": "reconnect.backoff.ms",
    "reconnect_backoff_max_ms": "reconnect.backoff.max.ms",
    "connections_max_idle_ms": "connections.max.idle.ms",
}
"""Settings that become properties of librdkafka, for Kafka addresses: the sidecar's flag is for its own part only, or there is none."""

KAFKA_ONLY = tuple(name for name in PROPERTIES if name not in FLAGS)
"""Settings that Rota's log does not have."""

SIDECAR_SETTINGS = (
    *FLAGS,
    *KAFKA_ONLY,
    "security_protocol",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "partition_assignment_strategy",
    "credentials",
    "sasl_username",
    "sasl_password",
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_client_secret",
    "sidecar_flags",
)
