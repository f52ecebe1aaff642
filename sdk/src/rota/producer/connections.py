"""
Settings of a producer's connections: which of them its address has, and what the clients of the two systems get.

`Producer` and `AsyncProducer` check their settings here before they connect; the engines take their part.
"""

import os
from collections.abc import Iterator

from rota import errors, oauth, security
from rota.addresses import is_rota
from rota.producer.options import Options
from rota.security import MECHANISMS, uses_tls
from rota_proto.log.compression import NAMES, codec_of
from rota_service.addresses import is_loopback

# Settings that Rota's log does not have.
KAFKA_ONLY = ("reconnect_backoff_ms", "reconnect_backoff_max_ms", "connections_max_idle_ms")
FILES = {
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
}
# What a mechanism sends as it is.
EXPOSED = {"PLAIN": "password", oauth.OAUTHBEARER: "token"}
KafkaProperty = str | int | float | bool | oauth.Callback
RECONNECT = {"reconnect.backoff.ms", "reconnect.backoff.max.ms"}
# Kafka's defaults.
RECONNECT_BACKOFF_MS, RECONNECT_BACKOFF_MAX_MS, IDLE_MS = 50, 1_000, 540_000
RECONNECT_MS_MAX, IDLE_MS_MAX = 3_600_000, 2**31 - 1


def check(options: Options, address: str) -> None:
    """Raise InvalidArgument for settings that do not fit together, or that the system at the address does not have."""
    for message in _faults(options, address):
        raise errors.InvalidArgument(message)


def _faults(options: Options, address: str) -> Iterator[str]:
    yield from security.faults(options, has_login=_has_login(options))
    if is_rota(address):
        yield from _rota_faults(options)
    else:
        yield from _login_faults(options, address)
        yield from _number_faults(options)


def _has_login(options: Options) -> bool:
    """Return whether the producer logs in to Kafka; `kafka_config` may name the mechanism too."""
    given = ("sasl.mechanism", "sasl.mechanisms")
    return options.sasl_mechanism is not None or any(name in options.kafka_config for name in given)


def _rota_faults(options: Options) -> Iterator[str]:
    from rota.connection import TLS_CA_VARIABLE, credentials_of_environment

    yield from security.rota_faults(options)
    if codec_of(options.compression_type or "none") is None:
        yield (
            f"compression_type is {options.compression_type!r}, but bootstrap_servers is Rota's log, which has "
            f"{', '.join(NAMES.values())}: use one of them"
        )
    for name in KAFKA_ONLY:
        if getattr(options, name) is not None:
            yield f"{name} is for Kafka, but bootstrap_servers is Rota's log, whose connections gRPC keeps and renews: omit it"
    credentials = security.credentials_of(options) or credentials_of_environment(os.environ)
    if uses_tls(options) and credentials.ca_file is None:
        yield f"TLS needs the authority of Rota's servers: set ssl_cafile, or the variable {TLS_CA_VARIABLE}"


def _login_faults(options: Options, address: str) -> Iterator[str]:
    mechanism = options.sasl_mechanism
    if mechanism is None:
        for name in oauth.SETTINGS:
            if getattr(options, name) is not None:
                yield f"{name} is set without sasl_mechanism: use {oauth.OAUTHBEARER!r}"
        return
    if mechanism not in MECHANISMS:
        yield f"sasl_mechanism is {mechanism!r}: use one of {', '.join(MECHANISMS)}, or librdkafka's properties in kafka_config"
    yield from oauth.faults(options)
    for name in ("sasl_username", "sasl_password"):
        if mechanism != oauth.OAUTHBEARER and not getattr(options, name):
            yield f"sasl_mechanism is set without {name}: set both"
    yield from _exposure_faults(options, mechanism, address)


def _exposure_faults(options: Options, mechanism: str, address: str) -> Iterator[str]:
    """Yield the brokers on other machines to which a secret would be sent as it is."""
    secret = EXPOSED.get(mechanism)
    if secret is None or options.security_protocol is not None or _is_encrypted(options):
        return
    for broker in address.split(","):
        if not is_loopback(broker):
            yield (
                f"the {secret} would be sent to {broker} in plain text: set security_protocol='SASL_SSL', or "
                "'SASL_PLAINTEXT' to allow it"
            )


def _is_encrypted(options: Options) -> bool:
    given = str(options.kafka_config.get("security.protocol", ""))
    return uses_tls(options) or given.lower().endswith("ssl")


def _number_faults(options: Options) -> Iterator[str]:
    for name in KAFKA_ONLY:
        value, highest = (
            getattr(options, name),
            IDLE_MS_MAX if name == "connections_max_idle_ms" else RECONNECT_MS_MAX,
        )
        if value is not None and (type(value) is not int or not 0 < value <= highest):
            yield f"{name} is {value!r}: use an integer number of milliseconds from 1 to {highest}"


def kafka_connection(options: Options) -> dict[str, KafkaProperty]:
    """Return librdkafka's properties for the connections. Raises AuthenticationFailed if a token is needed and there is none."""
    config: dict[str, KafkaProperty] = {
        "client.id": options.client_id,
        "compression.type": options.compression_type or "none",
    }
    is_given = options.reconnect_backoff_ms is not None or options.reconnect_backoff_max_ms is not None
    if is_given or not RECONNECT & options.kafka_config.keys():
        # As in Kafka, the longest delay bounds the first one too; librdkafka refuses a first one that is longer. Beside
        # one of them in `kafka_config` no default is set.
        longest_ms = options.reconnect_backoff_max_ms or RECONNECT_BACKOFF_MAX_MS
        config["reconnect.backoff.ms"] = min(options.reconnect_backoff_ms or RECONNECT_BACKOFF_MS, longest_ms)
        config["reconnect.backoff.max.ms"] = longest_ms
    config["connections.max.idle.ms"] = options.connections_max_idle_ms or IDLE_MS
    if uses_tls(options) or options.sasl_mechanism is not None or options.security_protocol is not None:
        config["security.protocol"] = ("sasl_" if _has_login(options) else "") + (
            "ssl" if uses_tls(options) else "plaintext"
        )
    config |= {FILES[name]: str(file) for name in FILES if (file := getattr(options, name))}
    if options.sasl_mechanism is not None:
        config["sasl.mechanism"] = options.sasl_mechanism
    if options.sasl_mechanism == oauth.OAUTHBEARER:
        config["oauth_cb"] = oauth.callback(options)
    elif options.sasl_mechanism is not None:
        config["sasl.username"] = options.sasl_username or ""
        config["sasl.password"] = options.sasl_password or ""
    return config


def kafka_client(options: Options, address: str) -> dict[str, KafkaProperty]:
    """Return librdkafka's properties of a client beside the producer, with its connections: a reader, or an administrator."""
    config = {**kafka_connection(options), "bootstrap.servers": address, **options.kafka_config}
    # A property of producers.
    config.pop("compression.type", None)
    return config
