"""Settings of a producer: names, defaults, and rules between them. Read by both engines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict

from rota import errors
from rota.producer.partitioner import Partitioner
from rota.records import OutgoingRecord, RecordMetadata

if TYPE_CHECKING:
    from rota.connection import Credentials

Acks = Literal[0, 1, "all", -1]
Serializer = Callable[[str, object], bytes | None]
"""Function of topic and object; returns the bytes."""
OnDelivery = Callable[[RecordMetadata, errors.RotaError | None], None]
"""Function of the record's metadata (offset -1 if it was not written) and the error, if any."""

KIB = 1 << 10
FOREVER = (1 << 31) - 1


class Interceptor(Protocol):
    """Observes or changes every record. The producer calls both methods, which must not block."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record to send instead; called in the thread that sends."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: errors.RotaError | None) -> None:
        """Called in the producer's thread when a record is sent or has failed."""
        ...


class Settings(TypedDict, total=False):
    """Keyword arguments of a producer; `Options` documents each."""

    acks: Acks
    enable_idempotence: bool
    batch_size: int
    linger_ms: float
    buffer_memory: int
    max_block_ms: float
    max_request_size: int
    max_in_flight: int
    retries: int
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    request_timeout_ms: float
    delivery_timeout_ms: float
    metadata_max_age_ms: float
    partitioner: Partitioner
    key_serializer: Serializer
    value_serializer: Serializer
    interceptors: Sequence[Interceptor]
    on_delivery: OnDelivery
    transactional_id: str
    transaction_timeout_ms: int
    coordination: Literal["Auto", "Kafka", "Rota"]
    credentials: "Credentials"
    kafka_config: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All settings of a producer. Invariant: they are valid together; otherwise `InvalidArgument` is raised."""

    # 'all': flushed, survives a crash of the machine; 1: written, survives a crash of the process; 0: not
    # awaited.
    acks: Acks = "all"
    # Write no record twice, and none out of order. None: as far as `acks` allows.
    enable_idempotence: bool | None = None
    # A batch is sent once it is this large or `linger_ms` old.
    batch_size: int = 256 * KIB
    linger_ms: float = 5
    # Limit of unsent bytes; `send` then waits up to `max_block_ms`, as it does for the topic's partitions.
    buffer_memory: int = 32 * KIB * KIB
    max_block_ms: float = 60_000
    # Maximum size of a record.
    max_request_size: int = KIB * KIB
    # Maximum number of requests in flight. A partition is part of one of them only.
    max_in_flight: int = 5
    # Attempts after the first one, within `delivery_timeout_ms`.
    retries: int = FOREVER
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    request_timeout_ms: float = 30_000
    delivery_timeout_ms: float = 120_000
    # Interval at which the number of partitions is refreshed.
    metadata_max_age_ms: float = 300_000
    partitioner: Partitioner | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    interceptors: Sequence[Interceptor] = field(default_factory=tuple)
    on_delivery: OnDelivery | None = None
    # Makes the producer transactional: all records belong to transactions.
    transactional_id: str = ""
    transaction_timeout_ms: int = 60_000
    # Coordinator of the groups whose offsets are sent. `Rota` on a Kafka address is the shared engine.
    coordination: Literal["Auto", "Kafka", "Rota"] = "Auto"
    # For rota:// addresses.
    credentials: "Credentials | None" = None
    # For Kafka addresses: librdkafka properties, such as those for TLS and SASL.
    kafka_config: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def idempotent(self) -> bool:
        """Return whether the log detects duplicates of this producer's records."""
        return self.acks in ("all", -1) if self.enable_idempotence is None else self.enable_idempotence

    def __post_init__(self) -> None:
        for message in self._faults():
            raise errors.InvalidArgument(message)

    def _faults(self) -> list[str]:
        faults = [
            f"{name} is {value}; it must be greater than 0"
            for name in POSITIVE
            if not isinstance(value := getattr(self, name), int | float) or value <= 0
        ]
        if self.acks not in (0, 1, "all", -1):
            faults.append(f"acks is {self.acks!r}: use 0, 1 or 'all'")
        elif self.acks not in ("all", -1) and (self.enable_idempotence or self.transactional_id):
            faults.append("an idempotent or transactional producer needs acks='all': omit acks")
        if self.enable_idempotence is False and self.transactional_id:
            faults.append("transactions need an idempotent producer: omit enable_idempotence")
        if self.linger_ms < 0 or self.retries < 0 or self.max_block_ms < 0:
            faults.append("linger_ms, max_block_ms and retries cannot be negative: use 0")
        if self.delivery_timeout_ms < self.linger_ms + min(
            self.request_timeout_ms, self.delivery_timeout_ms / 2
        ):
            faults.append(
                "delivery_timeout_ms leaves no time for a request: it must be greater than linger_ms"
            )
        if self.batch_size > self.max_request_size:
            faults.append("batch_size is larger than max_request_size: lower it")
        if self.coordination not in COORDINATIONS:
            faults.append(f"coordination is {self.coordination!r}: use 'Auto', 'Kafka' or 'Rota'")
        return faults


POSITIVE = (
    "batch_size",
    "buffer_memory",
    "max_request_size",
    "max_in_flight",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "request_timeout_ms",
    "delivery_timeout_ms",
    "metadata_max_age_ms",
    "transaction_timeout_ms",
)
COORDINATIONS = ("Auto", "Kafka", "Rota")
NAMES = frozenset(each.name for each in fields(Options))


def options_of(settings: Settings) -> Options:
    """Build the options; raise InvalidArgument for an unknown setting."""
    for name in settings:
        if name not in NAMES:
            raise errors.InvalidArgument(f"unknown producer setting {name!r}: see rota.producer.options")
    return Options(**settings)


def buffer_exhausted(max_block_s: float) -> errors.BufferExhausted:
    """Build the error of a `send` that found no room for `max_block_ms`."""
    return errors.BufferExhausted(
        f"the buffer stayed full for {max_block_s:.1f} s (max_block_ms): send more slowly, raise buffer_memory, or check "
        "whether the server keeps up"
    )
