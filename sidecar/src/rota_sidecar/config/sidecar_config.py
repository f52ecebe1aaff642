"""
The configuration of a sidecar: one frozen value, made by `loading` and passed to every part that is configured.

A change makes another value: `dataclasses.replace` for an order of Fleet that changes one field, `loading` for other
settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rota_sidecar.config.parsing import ROTA_SCHEME
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.member.config import MemberConfig, Subscription


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """The servers that store the records, and those that coordinate the group."""

    # rota://HOST:PORT, or HOST:PORT of Kafka brokers: all of one kind.
    bootstrap_servers: tuple[str, ...]
    # auto, rota or kafka.
    coordination: str
    # Rota's coordinators, when the records are in Kafka.
    coordinator_addresses: tuple[str, ...]
    # Skip records of transactions that are open or aborted.
    read_committed: bool
    # Interval between lookups of topics and partitions.
    topics_refresh_ms: int
    # Time that records wait for more records on their way to the application; 0: not at all.
    linger_ms: int
    # Bytes that the server waits for before it responds to a fetch.
    fetch_min_bytes: int
    # Bytes of a response to a fetch, and the wait for the minimum; None: the backend's own.
    fetch_max_bytes: int | None
    fetch_max_wait_ms: int | None
    # Properties of Kafka's client.
    kafka_properties: Mapping[str, str]

    @property
    def stores_in_rota(self) -> bool:
        """True if the records are in Rota's log."""
        return all(address.startswith(ROTA_SCHEME) for address in self.bootstrap_servers)

    @property
    def is_coordinated_by_rota(self) -> bool:
        """True if Rota coordinates the group."""
        return self.coordination == "rota" or (self.coordination == "auto" and self.stores_in_rota)

    @property
    def rota_addresses(self) -> tuple[str, ...]:
        """Addresses of Rota's servers; empty if Kafka stores the records and coordinates the group."""
        return self.bootstrap_servers if self.stores_in_rota else self.coordinator_addresses


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """The source of bearer tokens; a file takes precedence over a value."""

    # Empty: none. file:///PATH: a file with a token, and the other fields are empty.
    token_endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_id_file: Path | None = None
    client_secret_file: Path | None = None
    scope: str = ""
    # Trusted for the token endpoint; None: the authorities of the operating system.
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class KerberosConfig:
    """The login to Kafka by Kerberos (GSSAPI)."""

    # The first part of the brokers' principals.
    service_name: str = "kafka"
    # Empty: the first one of the keytab, or of the credential cache.
    principal: str = ""
    # None: the credential cache.
    keytab: Path | None = None


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """The login to Kafka; a file takes precedence over the value of a variable."""

    # Empty: no login.
    mechanism: str
    username: str
    password: str = field(repr=False)
    username_file: Path | None
    password_file: Path | None
    # Of OAUTHBEARER, instead of user name and password.
    oauth: OAuthConfig = OAuthConfig()
    # Of GSSAPI, the same.
    kerberos: KerberosConfig = KerberosConfig()


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS towards servers. Files are read again for each connection."""

    # None: implied by the files.
    switch: bool | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def has_files(self) -> bool:
        """True if a file is given."""
        return any((self.ca_file, self.certificate_file, self.key_file))

    @property
    def is_given(self) -> bool:
        """True if the switch or a file is given."""
        return self.switch is not None or self.has_files

    @property
    def is_on(self) -> bool:
        """True if connections are encrypted."""
        return bool(self.switch) or self.has_files


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """Encryption and authentication towards servers."""

    # For Kafka, and for Rota's servers unless they have their own.
    tls: TlsConfig
    own_rota_tls: TlsConfig
    # Of Rota's servers.
    token_file: Path | None
    # Of Kafka.
    sasl: SaslConfig
    # Send secrets and records to other machines in clear text.
    is_insecure: bool

    @property
    def rota_tls(self) -> TlsConfig:
        """TLS towards Rota's servers: coordinator and Fleet."""
        return self.own_rota_tls if self.own_rota_tls.is_given else self.tls


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """Addresses and sockets that the sidecar listens on; empty or None: not at all."""

    application: str
    application_socket: Path | None
    # Permissions of the socket.
    application_socket_mode: int
    # Probes and metrics.
    http: str
    # Level at which metrics of partitions are exported: partition, topic or group.
    metrics_granularity: str
    drain_socket: Path | None


@dataclass(frozen=True, slots=True)
class HttpDeliveryConfig:
    """Delivery of records by HTTP."""

    # Empty: the application attaches over gRPC.
    url: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """The Fleet server; empty: none."""

    address: str
    # None: the token of Rota's servers.
    token_file: Path | None
    # Reported to Fleet as it is; the operator compares it with the settings of the spec.
    settings_hash: str


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """The process: its log, its state, its end."""

    # auto, json or text.
    log_format: str
    # None: the member's identity is not kept over a restart.
    state_folder: Path | None
    ends_with_stdin: bool
    # From SIGTERM to the exit; also the time that a drain waits for verdicts.
    drain_timeout_ms: int
    # For the application to release its partitions, after the drain.
    leave_timeout_ms: int


@dataclass(frozen=True, slots=True)
class SidecarConfig:
    """Configuration of one sidecar. Invariant: values are within the bounds of their flags, and fit together."""

    member: MemberConfig
    # The member is static; without `member.instance_id` it joins when Fleet has assigned one.
    is_static: bool
    # Empty: the application subscribes.
    subscription: Subscription
    # Names of strategies, the preferred one first.
    assignors: tuple[str, ...]
    max_moved_partitions_percent: int
    delivery: DeliveryConfig
    http_delivery: HttpDeliveryConfig
    backend: BackendConfig
    security: SecurityConfig
    listeners: ListenerConfig
    fleet: FleetConfig
    process: ProcessConfig

    @property
    def has_subscription(self) -> bool:
        """True if the sidecar subscribes; else the application does."""
        return bool(self.subscription.topics or self.subscription.pattern)
