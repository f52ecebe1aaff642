"""
Parameters of Kafka's clients that are not settings of Rota under the same name.

`renamed`: Rota's name for them. `fixed`: Rota behaves in one way, and accepts the value that stands for it. `refused`: there
is nothing to set. `without_kafkas` is called with the settings of a consumer or producer before its options are built, and
docs/reference/parameters.md lists all of them. The options of both check values with `positive_faults`,
`type_faults` and `is_label`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rota import errors


class Fixed(NamedTuple):
    """The one accepted value of a parameter, and the reason why there is no other."""

    value: object
    reason: str


@dataclass(frozen=True, slots=True)
class KafkaParameters:
    """Parameters of one kind of client, by their name with underscores. Invariant: each is in one of the three."""

    # "consumer" or "producer", for messages.
    kind: str
    renamed: Mapping[str, str]
    fixed: Mapping[str, Fixed]
    refused: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Return True for a parameter that is listed here."""
        return name in self.renamed or name in self.fixed or name in self.refused


# Longest name of a client or a rack.
LABEL_LENGTH_MAX = 249
LOOP = "connections are served by Rota's own event loop, gRPC and librdkafka"
DIRECT = "connections are made without a proxy"
CONSUMER_METRICS = "the metrics of a consumer are those of its sidecar: call metrics(), or scrape a running sidecar at /metrics"
PRODUCER_METRICS = (
    "a producer has no metrics of its own: on_delivery and interceptors get the outcome of every record"
)


def _by_name(names: Iterable[str], reason: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


RENAMED = {
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    # Of librdkafka.
    "metadata_broker_list": "bootstrap_servers",
    "sasl_mechanisms": "sasl_mechanism",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "socket_timeout_ms": "request_timeout_ms",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "https_ca_location": "sasl_oauthbearer_cafile",
    # Of Java.
    "interceptor_classes": "interceptors",
    "sasl_oauthbearer_client_credentials_client_id": "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_credentials_client_secret": "sasl_oauthbearer_client_secret",
}
FIXED = {
    "ssl_check_hostname": Fixed(value=True, reason="the certificate of a server must name its host"),
    "sasl_oauthbearer_method": Fixed(
        value="oidc", reason="tokens come from a token endpoint or a file, or from sasl_oauth_token_provider"
    ),
    "client_dns_lookup": Fixed(
        value="use_all_dns_ips", reason="all addresses of a host name are tried, one after the other"
    ),
}
REFUSED = {
    "ssl_context": "gRPC and librdkafka make TLS connections themselves, from files: use ssl_cafile, ssl_certfile and ssl_keyfile",
    "ssl_crlfile": "certificates are not checked against revocation lists: replace the authority in ssl_cafile",
    "ssl_password": "keys are read without a password: restrict the permissions of ssl_keyfile",
    "ssl_ciphers": "gRPC and librdkafka choose the ciphers",
    **_by_name(
        ("api_version", "api_version_auto_timeout_ms"),
        "versions of the protocol are negotiated with the server",
    ),
    **_by_name(("proxy_url", "socks5_proxy"), DIRECT),
    **_by_name(("selector", "kafka_client"), LOOP),
    "oauth_cb": "give a token endpoint, sasl_oauthbearer_token_endpoint_url, or an object, sasl_oauth_token_provider",
    "error_cb": "errors are raised by the calls that they concern, and logged",
}
METRICS = (
    "metric_reporters",
    "metrics_enabled",
    "metrics_num_samples",
    "metrics_sample_window_ms",
    "metric_group_prefix",
    "statistics_interval_ms",
    "stats_cb",
)
SOCKETS = (
    "sock_chunk_bytes",
    "sock_chunk_buffer_count",
    "receive_buffer_bytes",
    "send_buffer_bytes",
    "receive_message_max_bytes",
    "socket_options",
)

CONSUMER = KafkaParameters(
    "consumer",
    renamed={
        **RENAMED,
        "fetch_wait_max_ms": "fetch_max_wait_ms",
        "fetch_message_max_bytes": "max_partition_fetch_bytes",
    },
    fixed={
        **FIXED,
        "check_crcs": Fixed(value=True, reason="batches that were damaged on a disk are detected, and raise CorruptMessage"),
        "allow_auto_create_topics": Fixed(
            value=False, reason="consumers create no topics: use rota.create_topics or `rota topics create`"
        ),
        "exclude_internal_topics": Fixed(value=True, reason="a pattern matches no internal topic: subscribe to it by its name"),
        "group_protocol": Fixed(value="classic", reason="sidecars speak the classic protocol"),
        "enable_auto_offset_store": Fixed(
            value=True, reason="a record counts as consumed when the poll after its own begins: use enable_auto_commit=False and commit()"
        ),
        "enable_partition_eof": Fixed(value=False, reason="polls return records only: compare position() with end_offsets()"),
    },
    refused={
        **REFUSED,
        **_by_name(METRICS, CONSUMER_METRICS),
        **_by_name(
            ("sasl_kerberos_name", "sasl_kerberos_domain_name"),
            "a broker's Kerberos principal has the host of its address: use sasl_kerberos_service_name, and addresses with that host",
        ),
        "sasl_kerberos_kinit_cmd": "the sidecar gets tickets without kinit: use sasl_kerberos_keytab",
        "sasl_kerberos_min_time_before_relogin": "tickets are renewed when half of their lifetime is over",
        **_by_name(
            SOCKETS,
            "messages and buffers have the sizes of gRPC and of the operating system; for Kafka, give librdkafka's property in "
            "sidecar_flags, such as --config=socket.receive.buffer.bytes=65536",
        ),
        "bootstrap_timeout_ms": "no constructor waits for a server: calls wait for default_api_timeout_ms",
        "max_in_flight_requests_per_connection": "the sidecar fetches each partition once at a time, and merges requests",
        "legacy_iterator": "there is one kind of iteration, over the records of polls",
        "enable_incremental_fetch_sessions": "the sidecar makes the fetch requests, and they have no sessions",
        **_by_name(
            ("default_offset_commit_callback", "on_commit"),
            "pass the callback to commit_async, or use an interceptor's on_commit",
        ),
    },
)  # fmt: skip
PRODUCER = KafkaParameters(
    "producer",
    renamed={
        **RENAMED,
        "max_in_flight": "max_in_flight_requests_per_connection",
        "message_timeout_ms": "delivery_timeout_ms",
        "message_max_bytes": "max_request_size",
        "message_send_max_retries": "retries",
        "request_required_acks": "acks",
        "compression_codec": "compression_type",
        "queue_buffering_max_ms": "linger_ms",
    },
    fixed=FIXED,
    refused={
        **REFUSED,
        **_by_name(METRICS, PRODUCER_METRICS),
        **_by_name(
            SOCKETS,
            "messages and buffers have the sizes of gRPC and of the operating system; for Kafka, give librdkafka's property in "
            "kafka_config, such as socket.receive.buffer.bytes",
        ),
        **_by_name(
            (
                "sasl_kerberos_service_name", "sasl_kerberos_principal", "sasl_kerberos_keytab", "sasl_kerberos_name",
                "sasl_kerberos_domain_name", "sasl_kerberos_kinit_cmd", "sasl_kerberos_min_time_before_relogin",
            ),
            "confluent-kafka's wheels are built without Kerberos; with a build of your own, give librdkafka's properties in "
            "kafka_config, such as sasl.mechanism and sasl.kerberos.keytab",
        ),
        "queue_buffering_max_kbytes": "the buffer is limited in bytes: use buffer_memory",
        "bootstrap_timeout_ms": "no constructor waits for a server: calls wait for max_block_ms",
        "allow_auto_create_topics": "Rota's log creates no topics by itself, and Kafka's brokers decide by auto.create.topics.enable",
    },
)  # fmt: skip


def without_kafkas(
    settings: Mapping[str, object], known: Iterable[str], kafka: KafkaParameters
) -> dict[str, object]:
    """Return the settings without the fixed ones. Raises InvalidArgument for a setting that is unknown, renamed or refused."""
    return {
        name: value
        for name, value in settings.items()
        if name in known or not _is_fixed(name, value, kafka, known)
    }


def _is_fixed(name: str, value: object, kafka: KafkaParameters, known: Iterable[str]) -> bool:
    """Return True for a parameter with its one accepted value; raise InvalidArgument for every other one."""
    fixed = kafka.fixed.get(name)
    if fixed is not None and (type(value), value) == (type(fixed.value), fixed.value):
        return True
    if fixed is not None:
        raise errors.InvalidArgument(
            f"{name} is {value!r}, but a {kafka.kind} has {fixed.value!r} only: {fixed.reason}"
        )
    if name in kafka.renamed:
        raise errors.InvalidArgument(f"{name} is called {kafka.renamed[name]} here: use that name")
    if name in kafka.refused:
        raise errors.InvalidArgument(f"a {kafka.kind} has no setting {name}: {kafka.refused[name]}")
    ours = name.replace(".", "_")
    if ours != name and (ours in known or kafka.has(ours)):
        raise errors.InvalidArgument(
            f"{name!r} is written {kafka.renamed.get(ours, ours)} here: settings are keyword arguments"
        )
    raise errors.InvalidArgument(f"unknown {kafka.kind} setting {name!r}: see rota.{kafka.kind}.options")


def is_label(value: object) -> bool:
    """Return whether a value can name a client or a rack."""
    return isinstance(value, str) and len(value) <= LABEL_LENGTH_MAX and value.isprintable()


def positive_faults(options: object, names: Iterable[str]) -> Iterator[str]:
    """Yield the faults of settings that are numbers greater than 0."""
    for name in names:
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{name} is {value!r}; it must be a number greater than 0"
        elif value <= 0:
            yield f"{name} is {value}; it must be greater than 0"


def type_faults(options: object, *, booleans: Iterable[str], functions: Iterable[str]) -> Iterator[str]:
    """Yield the faults of settings that are booleans or functions; None: not given."""
    for name in booleans:
        value = getattr(options, name)
        if value is not None and not isinstance(value, bool):
            yield f"{name} is {value!r}; it must be True or False"
    for name in functions:
        value = getattr(options, name)
        if value is not None and not callable(value):
            yield f"{name} is {value!r}; it must be a function"
