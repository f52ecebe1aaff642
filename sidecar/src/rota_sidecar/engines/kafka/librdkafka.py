"""
librdkafka's connection settings and the meaning of its errors, for `consumption.py`, `lookups.py` and `writing.py`.

Only these modules and `batching.py` import confluent-kafka. `wiring.py` imports `reading.py` and `writing.py`, which load
them, for a Kafka address only: with Rota's log librdkafka would cost memory for nothing.
"""

from collections.abc import Callable

from confluent_kafka import KafkaError

from rota_sidecar.core.delivery.events import FetchError
from rota_sidecar.engines.kafka.conversations import token_credentials
from rota_sidecar.engines.kafka.login import refuse_unsafe
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl
from rota_sidecar.engines.port import Refused, Unreachable

Callback = Callable[[str], tuple[str, float, str]]
Config = dict[str, str | int | float | bool | Callback]
# Error codes of Kafka's protocol that KafkaError does not name.
SASL_AUTHENTICATION_FAILED = 58
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_ID = 100
UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,
        UNKNOWN_TOPIC_ID,
    }
)
DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
# Errors that a retry does not fix.
REFUSALS = DENIED | {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    SASL_AUTHENTICATION_FAILED,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
}
# Kafka's defaults of the delays before a broker is connected again.
RECONNECT: Config = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1_000}
FETCH_ERRORS = {
    KafkaError._AUTO_OFFSET_RESET: FetchError.OUT_OF_RANGE,
    KafkaError.OFFSET_OUT_OF_RANGE: FetchError.OUT_OF_RANGE,
    **dict.fromkeys(UNKNOWN, FetchError.UNKNOWN_TOPIC),
    **dict.fromkeys(DENIED, FetchError.DENIED),
    CORRUPT_MESSAGE: FetchError.CORRUPT,
    KafkaError._BAD_MSG: FetchError.CORRUPT,
    KafkaError._BAD_COMPRESSION: FetchError.CORRUPT,
}


def connection_config(settings: KafkaSettings) -> Config:
    """
    Return the connection settings of a librdkafka client; reads the files now. Raises Refused, Unreachable.

    With a token endpoint it blocks while that is asked: librdkafka would not say why there is no token.
    """
    for address in settings.addresses:
        refuse_unsafe(settings, address)
    config: Config = {
        "bootstrap.servers": ",".join(settings.bootstrap),
        "client.id": settings.client_id,
        # Errors arrive in callbacks; librdkafka's own log lines on standard error would not be in the format of the log.
        "log_level": 0,
        "connections.max.idle.ms": 540_000,
        "socket.keepalive.enable": True,
        "security.protocol": _protocol(settings),
    }
    if settings.tls is not None:
        files = settings.tls
        config["ssl.ca.location"] = "probe" if files.ca is None else str(files.ca)
        if files.certificate is not None:
            config["ssl.certificate.location"] = str(files.certificate)
            config["ssl.key.location"] = str(files.key)
    if settings.sasl is not None:
        config |= _login(settings.sasl)
    if not RECONNECT.keys() & settings.properties.keys():
        # With one of them given, the other one is librdkafka's: it refuses a first delay that is longer than the longest.
        config |= RECONNECT
    # After the tuning of a client, which they replace, also by a property's other name.
    return {**config, **settings.properties}


def _login(sasl: Sasl) -> Config:
    if sasl.tokens is not None:
        token_credentials(sasl.tokens, is_due=False)
        return {"sasl.mechanism": sasl.mechanism, "oauth_cb": sasl.tokens.callback}
    credentials = sasl.credentials()
    return {
        "sasl.mechanism": sasl.mechanism,
        "sasl.username": credentials.user,
        "sasl.password": credentials.password,
    }


def _protocol(settings: KafkaSettings) -> str:
    return ("sasl_" if settings.sasl is not None else "") + (
        "ssl" if settings.tls is not None else "plaintext"
    )


def reason_of(error: KafkaError) -> str:
    """Return librdkafka's description of the error, without a period."""
    return (error.str() or error.name()).strip().rstrip(".")


def failure_of(error: KafkaError, message: str) -> Unreachable | Refused:
    """Return Refused for an error that a retry does not fix, else Unreachable."""
    return Refused(message) if error.code() in REFUSALS else Unreachable(message)
