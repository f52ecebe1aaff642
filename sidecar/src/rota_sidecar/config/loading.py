"""
Make the configuration: flags take precedence over variables, variables over settings, settings over defaults.

`__main__` reads the sources once; for Fleet's order `Configure` the same flags and variables are combined with other
settings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rota_sidecar.config import flags
from rota_sidecar.config.arguments import parse_arguments
from rota_sidecar.config.flag_types import ConfigError, Flag
from rota_sidecar.config.oauth_flags import CLIENT_SECRET_VARIABLE
from rota_sidecar.config.sidecar_config import (
    BackendConfig,
    FleetConfig,
    HttpDeliveryConfig,
    KerberosConfig,
    ListenerConfig,
    OAuthConfig,
    ProcessConfig,
    SaslConfig,
    SecurityConfig,
    SidecarConfig,
    TlsConfig,
)
from rota_sidecar.config.validation import problem, secret_in
from rota_sidecar.core.delivery.config import CommitMode, DeliveryConfig, Reset
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Backoff, Rules
from rota_sidecar.core.member.config import MemberConfig, Subscription

if TYPE_CHECKING:
    from rota_proto.fleet.v1.settings_pb2 import GroupSettings

HEARTBEAT_MS = 3_000
T = TypeVar("T")


class Values:
    """A value for every flag."""

    def __init__(self, *sources: Mapping[Flag[Any], object]) -> None:
        """Combine the sources; a later one takes precedence."""
        self._held: dict[Flag[Any], object] = {flag: flag.default for flag in flags.FLAGS}
        for source in sources:
            self._held.update(source)

    def __getitem__(self, flag: Flag[T]) -> T:
        # A source holds for each flag what the flag has read.
        return cast("T", self._held[flag])


@dataclass(frozen=True, slots=True)
class ConfigSources:
    """The parsed sources of a configuration. Invariant: each value is one that its flag accepts."""

    given: Mapping[Flag[Any], object]
    settings: Mapping[Flag[Any], object]
    sasl_username: str
    sasl_password: str = field(repr=False)
    sasl_client_secret: str = field(repr=False)

    def with_settings(self, settings: "GroupSettings") -> "ConfigSources":
        """Return the same flags and variables with other settings. Raises ConfigError."""
        from rota_sidecar.config.settings import values_of

        return replace(self, settings=values_of(settings))

    def config(self) -> SidecarConfig:
        """Make the configuration. Raises ConfigError if values do not fit together."""
        config = self._combined()
        wrong = problem(config)
        if wrong:
            raise ConfigError(wrong)
        return config

    def changed_fixed_setting(self, other: "ConfigSources") -> str:
        """Return the path of a fixed setting that differs in the other sources; empty: none differs."""
        ours, theirs = self._values(), other._values()
        for path, flag in flags.BY_SETTING.items():
            if flag.setting is not None and flag.setting.is_fixed and ours[flag] != theirs[flag]:
                return path
        return ""

    def _values(self) -> Values:
        return Values(self.settings, self.given)

    def _combined(self) -> SidecarConfig:
        values = self._values()
        pattern = values[flags.TOPIC_PATTERN]
        return SidecarConfig(
            member=_member(values),
            is_static=values[flags.STATIC],
            subscription=Subscription(values[flags.TOPICS], pattern),
            assignors=values[flags.ASSIGNORS],
            max_moved_partitions_percent=values[flags.MAX_MOVED_PARTITIONS_PERCENT],
            delivery=_delivery(values),
            http_delivery=HttpDeliveryConfig(values[flags.DELIVERY_URL], values[flags.DELIVERY_TIMEOUT_MS]),
            backend=_backend(values),
            security=self._security(values),
            listeners=_listeners(values),
            fleet=FleetConfig(
                values[flags.FLEET], values[flags.FLEET_TOKEN_FILE], values[flags.SETTINGS_HASH]
            ),
            process=_process(values),
        )

    def _security(self, values: Values) -> SecurityConfig:
        sasl = SaslConfig(
            values[flags.SASL_MECHANISM],
            self.sasl_username,
            self.sasl_password,
            values[flags.SASL_USERNAME_FILE],
            values[flags.SASL_PASSWORD_FILE],
            OAuthConfig(
                values[flags.SASL_TOKEN_ENDPOINT_URL],
                values[flags.SASL_CLIENT_ID],
                self.sasl_client_secret,
                values[flags.SASL_CLIENT_ID_FILE],
                values[flags.SASL_CLIENT_SECRET_FILE],
                values[flags.SASL_SCOPE],
                values[flags.SASL_TLS_CA],
            ),
            KerberosConfig(
                values[flags.KERBEROS_SERVICE_NAME],
                values[flags.KERBEROS_PRINCIPAL],
                values[flags.KERBEROS_KEYTAB],
            ),
        )
        return SecurityConfig(
            tls=TlsConfig(
                values[flags.TLS], values[flags.TLS_CA], values[flags.TLS_CERT], values[flags.TLS_KEY]
            ),
            own_rota_tls=TlsConfig(
                values[flags.ROTA_TLS],
                values[flags.ROTA_TLS_CA],
                values[flags.ROTA_TLS_CERT],
                values[flags.ROTA_TLS_KEY],
            ),
            token_file=values[flags.TOKEN_FILE],
            sasl=sasl,
            is_insecure=values[flags.INSECURE],
        )


def read_sources(arguments: Sequence[str], environ: Mapping[str, str]) -> ConfigSources:
    """Read command line, variables, and the settings file that they name. Raises ConfigError."""
    wrong = secret_in(arguments)
    if wrong:
        raise ConfigError(wrong)
    given: dict[Flag[Any], object] = {
        flag: flag.read(flag.option, raw) for flag, raw in parse_arguments(arguments).items()
    }
    given |= {
        flag: flag.read(flag.variable, environ[flag.variable])
        for flag in flags.FLAGS
        if flag.variable in environ and flag not in given
    }
    secrets = (flags.SASL_USERNAME, flags.SASL_PASSWORD, CLIENT_SECRET_VARIABLE)
    sources = ConfigSources(given, {}, *(environ.get(variable, "") for variable in secrets))
    file = Values(given)[flags.SETTINGS]
    if file is None:
        return sources
    # Imported late: it loads protobuf.
    from rota_sidecar.config.settings import read_file

    settings = read_file(file)
    try:
        return sources.with_settings(settings)
    except ConfigError as error:
        raise ConfigError(f"--settings {file}: {error}") from None


def _member(values: Values) -> MemberConfig:
    config = MemberConfig(
        group_id=values[flags.GROUP_ID],
        client_id=values[flags.CLIENT_ID],
        instance_id=values[flags.GROUP_INSTANCE_ID] or None,
        rack=values[flags.RACK],
        session_timeout_ms=values[flags.SESSION_TIMEOUT_MS],
        rebalance_timeout_ms=values[flags.REBALANCE_TIMEOUT_MS],
        request_timeout_ms=values[flags.REQUEST_TIMEOUT_MS],
        backoff_ms=values[flags.RETRY_BACKOFF_MS],
        backoff_max_ms=values[flags.RETRY_BACKOFF_MAX_MS],
    )
    heartbeat_ms = values[flags.HEARTBEAT_INTERVAL_MS]
    if heartbeat_ms is None:
        heartbeat_ms = min(HEARTBEAT_MS, config.heartbeat_interval_max_ms)
    return replace(config, heartbeat_interval_ms=heartbeat_ms)


def _delivery(values: Values) -> DeliveryConfig:
    dead_letter_topic = values[flags.DEAD_LETTER_TOPIC]
    initial_offset = Reset(values[flags.INITIAL_OFFSET])
    expired = values[flags.ON_OFFSET_EXPIRED]
    if expired is None:
        on_offset_expired = initial_offset
    else:
        on_offset_expired = Reset.NONE if expired == flags.FAIL else Reset(expired)
    return DeliveryConfig(
        group_id=values[flags.GROUP_ID],
        rules=Rules(
            ordering=Ordering(values[flags.ORDERING]),
            in_flight_max=values[flags.IN_FLIGHT_MAX],
            retries=values[flags.RETRIES],
            backoff=Backoff(values[flags.BACKOFF]),
            backoff_ms=values[flags.BACKOFF_MS],
            backoff_max_ms=values[flags.BACKOFF_MAX_MS],
            has_dead_letters=bool(dead_letter_topic),
        ),
        concurrency=values[flags.CONCURRENCY],
        processing_timeout_ms=values[flags.PROCESSING_TIMEOUT_MS],
        commit_mode=CommitMode(values[flags.COMMIT_MODE]),
        commit_interval_ms=values[flags.COMMIT_INTERVAL_MS],
        initial_offset=initial_offset,
        on_offset_expired=on_offset_expired,
        dead_letter_topic=dead_letter_topic,
        rate_max=values[flags.RATE_MAX],
        priorities=values[flags.PRIORITIES],
        ahead_bytes_max=values[flags.AHEAD_BYTES_MAX],
        ahead_bytes_total_max=values[flags.AHEAD_BYTES_TOTAL_MAX],
        suspended=values[flags.SUSPEND],
    )


def _backend(values: Values) -> BackendConfig:
    return BackendConfig(
        bootstrap_servers=values[flags.BOOTSTRAP_SERVERS],
        coordination=values[flags.COORDINATION],
        coordinator_addresses=values[flags.COORDINATOR_ADDRESS],
        read_committed=values[flags.ISOLATION_LEVEL] == flags.READ_COMMITTED,
        topics_refresh_ms=values[flags.TOPICS_REFRESH_MS],
        linger_ms=values[flags.LINGER_MS],
        fetch_min_bytes=values[flags.FETCH_MIN_BYTES],
        fetch_max_bytes=values[flags.FETCH_MAX_BYTES],
        fetch_max_wait_ms=values[flags.FETCH_MAX_WAIT_MS],
        kafka_properties=values[flags.CONFIG],
    )


def _listeners(values: Values) -> ListenerConfig:
    return ListenerConfig(
        application=values[flags.APPLICATION_ADDRESS],
        application_socket=values[flags.APPLICATION_SOCKET],
        application_socket_mode=values[flags.APPLICATION_SOCKET_MODE],
        http=values[flags.HTTP_ADDRESS],
        metrics_granularity=values[flags.METRICS_GRANULARITY],
        drain_socket=values[flags.DRAIN_SOCKET],
    )


def _process(values: Values) -> ProcessConfig:
    return ProcessConfig(
        log_format=values[flags.LOG_FORMAT],
        state_folder=values[flags.STATE_FOLDER],
        ends_with_stdin=values[flags.ENDS_WITH_STDIN],
        drain_timeout_ms=values[flags.DRAIN_TIMEOUT_MS],
        leave_timeout_ms=values[flags.LEAVE_TIMEOUT_MS],
    )
