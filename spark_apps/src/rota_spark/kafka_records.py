"""
Records of Kafka, as an executor reads them with confluent-kafka.

Credentials come from the executor's environment: ROTA_SASL_MECHANISM, ROTA_SASL_USERNAME and ROTA_SASL_PASSWORD, and a file of
librdkafka's properties that ROTA_KAFKA_PROPERTIES names, such as `ssl.ca.location=/etc/kafka/ca.crt`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from typing_extensions import override

from rota.clocks import system_clocks
from rota_spark.columns import RECORDS_MAX, Columns
from rota_spark.core.plan import Range
from rota_spark.log_records import AWAY_MAX_S, LogRecords, ReadFailed, gone

if TYPE_CHECKING:
    import pyarrow

PROPERTIES_VARIABLE = "ROTA_KAFKA_PROPERTIES"
LOOK_UP_S = 30.0
# Longest wait for as many records as are asked for; offsets of a range that have no records are asked for too.
POLL_S = 0.1
FETCH_WAIT_MS = 10
LOGIN = {
    "sasl.mechanism": "ROTA_SASL_MECHANISM",
    "sasl.username": "ROTA_SASL_USERNAME",
    "sasl.password": "ROTA_SASL_PASSWORD",
}
GONE = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
)
DENIED = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


class KafkaRecords(LogRecords):
    """A consumer outside of any group, which commits nothing."""

    def __init__(self, address: str, *, read_committed: bool) -> None:
        self._problem: KafkaError | None = None
        self._consumer = Consumer(
            {
                **configuration(address, os.environ),
                "group.id": "of-no-group",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                # Its default of a second is idle time between two fetches when the queue is full.
                "fetch.queue.backoff.ms": 10,
                # All records of a range are there. What lies behind it is fetched ahead, and the next range waits for the answer.
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        self._columns = Columns()
        self._clock_s = system_clocks().monotonic_s

    def _on_error(self, error: KafkaError) -> None:
        self._problem = error

    @override
    def ranges(self, topics: Sequence[str]) -> list[Range]:
        found: list[Range] = []
        for topic in topics:
            described = self._consumer.list_topics(topic, LOOK_UP_S).topics[topic]
            if described.error is not None:
                raise ReadFailed(f"topic {topic} cannot be read ({described.error.str()}): check its name")
            for number in sorted(described.partitions):
                start, end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), LOOK_UP_S)
                found.append(Range(topic, number, start, end))
        return found

    @override
    def read(self, wanted: Range) -> Iterator["pyarrow.RecordBatch"]:
        if not wanted.records:
            return
        self._consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        offset, is_done = wanted.start, False
        deadline_s = self._clock_s() + AWAY_MAX_S
        while not is_done:
            # librdkafka waits for as many as it is asked for, so not for more than the range can have.
            messages = self._consumer.consume(min(RECORDS_MAX, wanted.end - offset), POLL_S)
            if messages:
                deadline_s = self._clock_s() + AWAY_MAX_S
            elif self._clock_s() >= deadline_s:
                raise ReadFailed(f"{_named(wanted)} cannot be read: {self._reason()}")
            records, is_done = self._before_end(messages, wanted)
            if records:
                offset = (records[-1].offset() or offset) + 1
                yield self._batch(wanted, records)
        self._consumer.unassign()

    def _before_end(self, messages: Sequence[Message], wanted: Range) -> tuple[list[Message], bool]:
        """Return the records of the range, and True if it has no more: offsets at its end may have no record."""
        records: list[Message] = []
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None and offset is not None and offset < wanted.end:
                records.append(message)
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise ReadFailed(described(error, wanted))
            if offset is not None and offset >= (wanted.end - 1 if error is None else wanted.end):
                return records, True
        return records, False

    def _batch(self, wanted: Range, records: Sequence[Message]) -> "pyarrow.RecordBatch":
        times = [each.timestamp() for each in records]
        return self._columns.batch(
            wanted.topic,
            wanted.partition,
            (
                [each.key() for each in records],
                [each.value() for each in records],
                [each.offset() for each in records],
                [None if kind == 0 else at_ms for kind, at_ms in times],
                [_headers(each) for each in records],
            ),
        )

    def _reason(self) -> str:
        problem = self._problem
        if problem is None:
            return f"no broker has answered for {AWAY_MAX_S:.0f} s"
        if problem.code() in DENIED:
            return _without_credentials(problem)
        return f"{problem.str()}; check that the brokers run and the executors reach them"

    @override
    def close(self) -> None:
        self._consumer.close()


def configuration(address: str, variables: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    """Return the connection settings of an environment. Raises ReadFailed for a file that cannot be read."""
    login = {name: variables[variable] for name, variable in LOGIN.items() if variables.get(variable)}
    return {
        "bootstrap.servers": address,
        **({"security.protocol": "sasl_ssl"} if login else {}),
        **login,
        **_properties(variables.get(PROPERTIES_VARIABLE, "")),
    }


def _properties(file: str) -> dict[str, str]:
    if not file:
        return {}
    try:
        text = Path(file).read_text()
    except OSError as error:
        raise ReadFailed(
            f"{file}, which {PROPERTIES_VARIABLE} names, cannot be read ({error.strerror}): mount it into the executors"
        ) from error
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _headers(message: Message) -> list[dict[str, object]] | None:
    headers = cast("Sequence[tuple[str, bytes | None]] | None", message.headers())
    return [{"key": name, "value": value} for name, value in headers] if headers else None


def _named(wanted: Range) -> str:
    return f"{wanted.topic}-{wanted.partition} from offset {wanted.start}"


def _without_credentials(error: KafkaError) -> str:
    return (
        f"the brokers denied access ({error.str()}): set ROTA_SASL_MECHANISM, ROTA_SASL_USERNAME and ROTA_SASL_PASSWORD, or "
        f"{PROPERTIES_VARIABLE}, in the environment of the executors"
    )


def described(error: KafkaError, wanted: Range) -> str:
    """Return a message about an error of a partition, with the remedy."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        return (
            f"{_named(wanted)} is not in the log: its records were deleted before the group read them; reset the group's "
            "offsets to continue behind the gap"
        )
    if error.code() in GONE:
        return gone(wanted)
    if error.code() in DENIED:
        return f"{_named(wanted)} cannot be read: {_without_credentials(error)}"
    return f"{_named(wanted)} cannot be read ({error.str()}): see the brokers' log"
