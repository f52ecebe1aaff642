"""
How librdkafka connects, and what its errors mean. For `consumption.py`, `lookups.py` and `writing.py`.

These four alone import confluent-kafka, and `reading.py` imports them: whoever puts the sidecar together imports
`reading.py` and `writing.py` only for a Kafka address, for on Rota's log librdkafka would only take memory.
"""

from confluent_kafka import KafkaError

from rota_sidecar.core.delivery.events import FetchError
from rota_sidecar.engines.kafka.login import refuse_unsafe
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.port import Refused, Unreachable

Config = dict[str, str | int | float | bool]
# By how they are named in the protocol.
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
# Nobody gets better by being asked again.
REFUSALS = DENIED | {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    SASL_AUTHENTICATION_FAILED,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
}
FETCH_ERRORS = {
    KafkaError._AUTO_OFFSET_RESET: FetchError.OUT_OF_RANGE,
    KafkaError.OFFSET_OUT_OF_RANGE: FetchError.OUT_OF_RANGE,
    **dict.fromkeys(UNKNOWN, FetchError.UNKNOWN_TOPIC),
    **dict.fromkeys(DENIED, FetchError.DENIED),
    CORRUPT_MESSAGE: FetchError.CORRUPT,
    KafkaError._BAD_MSG: FetchError.CORRUPT,
    KafkaError._BAD_COMPRESSION: FetchError.CORRUPT,
}
MESSAGES = {
    FetchError.OUT_OF_RANGE: (
        "offset {offset} is not in the log any more, or not yet: "
        "reset the group's offsets, or let it decide what it does then"
    ),
    FetchError.UNKNOWN_TOPIC: "it does not exist: make the topic, or leave it out of the group's subscription",
    FetchError.OTHER_TOPIC: (
        "the topic was deleted and made anew under the same name, so offsets of the old one say nothing: "
        "reset the group's offsets"
    ),
    FetchError.DENIED: "its topic is not for us: allow this user to read it",
    FetchError.CORRUPT: (
        "the batch at offset {offset} cannot be read: check the broker's disk, or get past it with "
        "`rota topics delete-records {topic} --partition {partition} --before OFFSET`, which deletes all records before "
        "that offset"
    ),
}


def connection_config(settings: KafkaSettings) -> Config:
    """As each client connects; files are read now. Raises Refused."""
    for address in settings.addresses:
        refuse_unsafe(settings, address)
    config: Config = {
        "bootstrap.servers": ",".join(settings.bootstrap),
        "client.id": settings.client_id,
        # What is wrong is heard by callbacks; librdkafka's own words on the standard error would be nobody's format.
        "log_level": 0,
        "reconnect.backoff.max.ms": 2_000,
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
        credentials = settings.sasl.credentials()
        config["sasl.mechanism"] = settings.sasl.mechanism
        config["sasl.username"] = credentials.user
        config["sasl.password"] = credentials.password
    return config


def _protocol(settings: KafkaSettings) -> str:
    return ("sasl_" if settings.sasl is not None else "") + (
        "ssl" if settings.tls is not None else "plaintext"
    )


def reason_of(error: KafkaError) -> str:
    """Its words, as the middle of a sentence."""
    return (error.str() or error.name()).strip().rstrip(".")


def failure_of(error: KafkaError, message: str) -> Unreachable | Refused:
    """Whether asking again may help."""
    return Refused(message) if error.code() in REFUSALS else Unreachable(message)
