"""Settings of a producer: names, defaults, and rules between them. Read by both engines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rota import errors
from rota.parameters import (
    LABEL_LENGTH_MAX,
    PRODUCER,
    is_label,
    positive_faults,
    type_faults,
    without_kafkas,
)
from rota.producer.interceptors import ProducerInterceptor
from rota.producer.partitioner import Partitioner
from rota.records import RecordMetadata
from rota.security import SecurityOptions, SecuritySettings

Acks = Literal[0, 1, "all", -1]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Serializer = Callable[[str, object], bytes | None]
"""Function of topic and object; returns the bytes."""
GivenSerializer = Serializer | Callable[[Any], bytes | None]
"""The same, or a function of the object alone; `rota.serializers.with_topic` makes a `Serializer` of it."""
OnDelivery = Callable[[RecordMetadata, errors.RotaError | None], None]
"""Function of the record's metadata (offset -1 if it was not written) and the error, if any."""

KIB = 1 << 10
FOREVER = (1 << 31) - 1


class Settings(SecuritySettings, total=False):
    """Keyword arguments of a producer, with those of its connections; `Options` documents each."""

    client_id: str
    acks: Acks
    enable_idempotence: bool
    compression_type: Compression
    batch_size: int
    linger_ms: float
    buffer_memory: int
    max_block_ms: float
    max_request_size: int
    max_in_flight_requests_per_connection: int
    retries: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    request_timeout_ms: float
    delivery_timeout_ms: float
    metadata_max_age_ms: float
    partitioner: Partitioner
    key_serializer: GivenSerializer
    value_serializer: GivenSerializer
    interceptors: Sequence[ProducerInterceptor]
    on_delivery: OnDelivery
    transactional_id: str
    transaction_timeout_ms: int
    coordination: Literal["Auto", "Kafka", "Rota"]
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    kafka_config: Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(SecurityOptions):
    """Settings of a producer. Invariant: they are valid together; otherwise `InvalidArgument` is raised."""

    # Name of the client in the logs of servers and of what lies before them.
    client_id: str = "rota"
    # 'all': flushed, survives a crash of the machine; 1: written, survives a crash of the process; 0: not
    # awaited.
    acks: Acks = "all"
    # Write no record twice, and none out of order. None: as far as `acks` allows.
    enable_idempotence: bool | None = None
    # Codec of batches; None: 'none'. Rota's log has 'none', 'gzip' and 'zstd', Kafka all of them.
    compression_type: Compression | None = None
    # A batch is sent once it is this large or `linger_ms` old.
    batch_size: int = 256 * KIB
    linger_ms: float = 5
    # Limit of unsent bytes; `send` then waits up to `max_block_ms`, as it does for the topic's partitions.
    buffer_memory: int = 32 * KIB * KIB
    max_block_ms: float = 60_000
    # Maximum size of a record.
    max_request_size: int = KIB * KIB
    # Maximum number of requests in flight. A partition is part of one of them only.
    max_in_flight_requests_per_connection: int = 5
    # Attempts after the first one, within `delivery_timeout_ms`; infinity is accepted.
    retries: float = FOREVER
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    request_timeout_ms: float = 30_000
    delivery_timeout_ms: float = 120_000
    # Interval at which the number of partitions is refreshed.
    metadata_max_age_ms: float = 300_000
    partitioner: Partitioner | None = None
    key_serializer: GivenSerializer | None = None
    value_serializer: GivenSerializer | None = None
    interceptors: Sequence[ProducerInterceptor] = field(default_factory=tuple)
    on_delivery: OnDelivery | None = None
    # Makes the producer transactional: all records belong to transactions.
    transactional_id: str = ""
    transaction_timeout_ms: int = 60_000
    # Coordinator of the groups whose offsets are sent. `Rota` on a Kafka address is the shared engine.
    coordination: Literal["Auto", "Kafka", "Rota"] = "Auto"
    # For connections to Kafka; None: Kafka's defaults, 50, 1,000 and 540,000.
    reconnect_backoff_ms: int | None = None
    reconnect_backoff_max_ms: int | None = None
    connections_max_idle_ms: int | None = None
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
        # The other rules compare these values.
        return list(self._single_faults()) or [
            *self._acks_faults(),
            *self._time_faults(),
            *self._choice_faults(),
        ]

    def _single_faults(self) -> Iterator[str]:
        yield from positive_faults(self, POSITIVE)
        yield from type_faults(self, booleans=BOOLEANS, functions=FUNCTIONS)
        for name in NOT_NEGATIVE:
            value = getattr(self, name)
            if not isinstance(value, int | float):
                yield f"{name} is {value!r}; it must be a number, 0 or greater"
        if any(isinstance(value := getattr(self, name), int | float) and value < 0 for name in NOT_NEGATIVE):
            yield "linger_ms, max_block_ms and retries cannot be negative: use 0"

    def _acks_faults(self) -> Iterator[str]:
        if self.acks not in (0, 1, "all", -1):
            yield f"acks is {self.acks!r}: use 0, 1 or 'all'"
        elif self.acks not in ("all", -1) and (self.enable_idempotence or self.transactional_id):
            yield "an idempotent or transactional producer needs acks='all': omit acks"
        if self.enable_idempotence is False and self.transactional_id:
            yield "transactions need an idempotent producer: omit enable_idempotence"

    def _time_faults(self) -> Iterator[str]:
        request_ms = min(self.request_timeout_ms, self.delivery_timeout_ms / 2)
        if self.delivery_timeout_ms < self.linger_ms + request_ms:
            yield "delivery_timeout_ms leaves no time for a request: it must be greater than linger_ms"
        if self.batch_size > self.max_request_size:
            yield "batch_size is larger than max_request_size: lower it"

    def _choice_faults(self) -> Iterator[str]:
        if self.compression_type not in (None, *COMPRESSIONS):
            yield f"compression_type is {self.compression_type!r}: use one of {', '.join(COMPRESSIONS)}"
        if not is_label(self.client_id):
            yield f"client_id is {self.client_id!r}: use at most {LABEL_LENGTH_MAX} printable characters"
        interceptors: Sequence[object] = self.interceptors
        for each in interceptors:
            if not isinstance(each, ProducerInterceptor):
                yield f"interceptors has {each!r}: use a subclass of rota.ProducerInterceptor"
        if self.coordination not in COORDINATIONS:
            yield f"coordination is {self.coordination!r}: use 'Auto', 'Kafka' or 'Rota'"


POSITIVE = (
    "batch_size",
    "buffer_memory",
    "max_request_size",
    "max_in_flight_requests_per_connection",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "request_timeout_ms",
    "delivery_timeout_ms",
    "metadata_max_age_ms",
    "transaction_timeout_ms",
)
BOOLEANS = ("enable_idempotence",)
FUNCTIONS = ("partitioner", "key_serializer", "value_serializer", "on_delivery")
NOT_NEGATIVE = ("linger_ms", "max_block_ms", "retries")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
COORDINATIONS = ("Auto", "Kafka", "Rota")
NAMES = frozenset(each.name for each in fields(Options))


def options_of(settings: Settings) -> Options:
    """Build the options; raise InvalidArgument for a setting that is unknown, or that Rota does not have."""
    return Options(**without_kafkas(settings, NAMES, PRODUCER))  # type: ignore[arg-type]


def settings_of(options: Options, address: str) -> dict[str, object]:
    """Return all settings by name, as interceptors get them."""
    return {
        "bootstrap_servers": address,
        **{each.name: getattr(options, each.name) for each in fields(Options)},
    }


def buffer_exhausted(max_block_s: float) -> errors.BufferExhausted:
    """Build the error of a `send` that found no room for `max_block_ms`."""
    return errors.BufferExhausted(
        f"the buffer stayed full for {max_block_s:.1f} s (max_block_ms): send more slowly, raise buffer_memory, or check "
        "whether the server keeps up"
    )
