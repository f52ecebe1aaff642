"""Settings of a consumer: names, defaults, and rules between them."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

from rota import errors
from rota.consumer import validation
from rota.consumer.batch_slice import GivenDeserializer
from rota.consumer.listeners import ConsumerInterceptor
from rota.consumer.sidecar_options import SIDECAR_SETTINGS, SidecarOptions
from rota.parameters import CONSUMER, positive_faults, type_faults, without_kafkas
from rota.security import SecuritySettings

SIDECAR = "ROTA_SIDECAR"
MIB = 1 << 20


class Settings(SecuritySettings, total=False):
    """Keyword arguments of a consumer, with those of its connections; `Options` documents each."""

    group_id: str
    bootstrap_servers: str | Sequence[str]
    sidecar: str
    client_id: str
    client_rack: str
    enable_auto_commit: bool
    max_poll_records: int
    max_buffered_records: int
    buffer_memory: int
    default_api_timeout_ms: float
    drain_timeout_ms: int
    consumer_timeout_ms: float
    key_deserializer: GivenDeserializer
    value_deserializer: GivenDeserializer
    interceptors: Sequence[ConsumerInterceptor]
    auto_offset_reset: Literal["earliest", "latest", "none"]
    auto_commit_interval_ms: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    metadata_max_age_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    group_instance_id: str
    partition_assignment_strategy: str | Sequence[str]
    coordination: Literal["auto", "kafka", "rota"]
    coordinator_address: str
    sasl_kerberos_service_name: str
    sasl_kerberos_principal: str
    sasl_kerberos_keytab: str
    sidecar_flags: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(SidecarOptions):
    """Settings of a consumer. Invariant: they are valid together; otherwise `InvalidArgument` is raised."""

    # Address of a running sidecar: `unix:/path` or `host:port`. Defaults to the variable ROTA_SIDECAR.
    sidecar: str = ""
    # Maximum number of records of one poll.
    max_poll_records: int = 500
    # Limits of the consumer's buffer: records, and approximate bytes.
    max_buffered_records: int = 10_000
    buffer_memory: int = 16 * MIB
    # Timeout of calls to the sidecar that take no timeout of their own.
    default_api_timeout_ms: float = 60_000
    # Iteration ends when no record has arrived for this long.
    consumer_timeout_ms: float = math.inf
    key_deserializer: GivenDeserializer | None = None
    value_deserializer: GivenDeserializer | None = None
    interceptors: Sequence[ConsumerInterceptor] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for message in self._faults():
            raise errors.InvalidArgument(message)

    def _faults(self) -> list[str]:
        faults = [
            *positive_faults(self, POSITIVE),
            *type_faults(self, booleans=BOOLEANS, functions=FUNCTIONS),
        ]
        if self.sidecar and self.bootstrap_servers:
            faults.append(
                "sidecar and bootstrap_servers are both set: a running sidecar knows its servers, omit one of them"
            )
        if not self.own_sidecar:
            faults += [
                f"{name} is a setting of the sidecar, but this consumer uses a running one: set it there"
                for name in SIDECAR_SETTINGS
                if getattr(self, name) not in (None, ())
            ]
        if not self.own_sidecar and not self.address:
            faults.append(
                f"no sidecar is configured: set sidecar= or {SIDECAR}, or bootstrap_servers= to start one"
            )
        interceptors: Sequence[object] = self.interceptors
        faults += [
            f"interceptors has {each!r}: use a subclass of rota.ConsumerInterceptor"
            for each in interceptors
            if not isinstance(each, ConsumerInterceptor)
        ]
        if self.own_sidecar and not self.group_id:
            faults.append("group_id is missing: set the group to join")
        if self.own_sidecar and not faults:
            faults += validation.faults(self)
        return faults

    @property
    def own_sidecar(self) -> bool:
        """Return whether the consumer starts a sidecar of its own."""
        return bool(self.bootstrap_servers) and not self.sidecar

    @property
    def sidecar_may_subscribe(self) -> bool:
        """Return whether topics may be among the settings of the sidecar, so that the application need not subscribe."""
        return not self.own_sidecar or any(
            validation.is_given(self, flag) for flag in ("topics", "topic-pattern")
        )

    @property
    def address(self) -> str:
        """Address of the running sidecar; empty if there is none."""
        return self.sidecar or os.environ.get(SIDECAR, "")


POSITIVE = (
    "max_poll_records",
    "max_buffered_records",
    "buffer_memory",
    "default_api_timeout_ms",
    "drain_timeout_ms",
    "consumer_timeout_ms",
)
BOOLEANS = ("enable_auto_commit",)
FUNCTIONS = ("key_deserializer", "value_deserializer")
NAMES = frozenset(each.name for each in fields(Options))


def options_of(settings: Settings) -> Options:
    """Build the options; raise InvalidArgument for a setting that is unknown, or that Rota does not have."""
    return Options(**without_kafkas(settings, NAMES, CONSUMER))  # type: ignore[arg-type]
