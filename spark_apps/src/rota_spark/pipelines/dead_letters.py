"""
Dead letters of a task: records that a pipeline cannot use, unchanged, with headers that name their origin.

The headers are those of the sidecar's dead letters, so that the same tools read both. A task produces them before it ends, with
the credentials of its executor's environment, and so before its batch is committed: a batch that is repeated repeats them.
"""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import rota
from rota.addresses import address_of, is_rota

if TYPE_CHECKING:
    from rota.producer.futures import SendFuture

PREFIX = "rota-dlq-"
# Milliseconds to wait for the partitions of the topic when a pipeline starts.
LOOK_UP_MS = 10_000
Headers = Sequence[tuple[str, bytes | None]]


class Rejected(NamedTuple):
    """A record that a pipeline cannot use."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


class DeadLetters:
    """Produces dead letters. Invariant: after the block without an error, all of them are durable."""

    def __init__(self, bootstrap_servers: str, topic: str, group_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._group_id = group_id
        # Most tasks have none.
        self._producer: rota.Producer | None = None
        self._sent: list[SendFuture] = []

    def send(self, record: Rejected, reason: str) -> None:
        """Queue a record; it is durable when the block has ended."""
        if self._producer is None:
            self._producer = producer_at(self._bootstrap_servers)
        headers = [*_own(record.headers), *_origin(record, reason, self._group_id)]
        sent = self._producer.send(
            self._topic, record.value, record.key, timestamp_ms=record.timestamp_ms, headers=headers
        )
        self._sent.append(sent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is None:
            return
        try:
            if error is None:
                self._producer.flush()
                for each in self._sent:
                    each.result()
        finally:
            self._producer.close()


def producer_at(bootstrap_servers: str, **settings: float) -> rota.Producer:
    """Connect with the credentials of this process's environment."""
    address = address_of(bootstrap_servers)
    if is_rota(address):
        return rota.Producer(bootstrap_servers, **settings)  # type: ignore[arg-type]
    from rota_spark.kafka_records import configuration

    login = configuration(address, os.environ)
    del login["bootstrap.servers"]
    return rota.Producer(bootstrap_servers, kafka_config=login, **settings)  # type: ignore[arg-type]


def topic_problem(bootstrap_servers: str, topic: str) -> str:
    """Return why the topic cannot take dead letters; empty: it can."""
    with producer_at(bootstrap_servers, max_block_ms=LOOK_UP_MS) as producer:
        try:
            producer.partitions_for(topic)
        except rota.errors.RotaError as error:
            return f"the dead-letter topic {topic} cannot be used ({error}): create it"
    return ""


def _own(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return the record's headers without those of an earlier dead letter."""
    return [(name, value) for name, value in headers if not name.startswith(PREFIX)]


def _origin(record: Rejected, reason: str, group_id: str) -> list[tuple[str, bytes | None]]:
    origin = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": -1 if record.timestamp_ms is None else record.timestamp_ms,
        "reason": reason,
        "deliveries": 1,
        "group": group_id,
    }
    return [(PREFIX + name, str(value).encode()) for name, value in origin.items()]
