"""
Timestamps of single records, as the driver looks them up for the lag in seconds.

`lag_reports` calls them on a thread of its own, with the credentials of the driver's environment. One look-up is for all partitions, and
fetches little of each; but a log gives batches of records as a whole.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple, Protocol, Self

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, TopicPartition
from typing_extensions import override

import rota
from rota.addresses import address_of, is_rota
from rota.clocks import system_clocks
from rota_spark.core.plan import Partition
from rota_spark.kafka_records import configuration

# Bytes of a partition that a fetch asks for.
FETCH_BYTES = 64 << 10
# Seconds for the records of all partitions; what was not found by then is looked up again.
LOOK_UP_S = 10.0
POLL_S = 0.5


class Found(NamedTuple):
    """Timestamps of partitions, and the problem of one of those that are left out; empty: none."""

    times_ms: dict[Partition, int]
    problem: str = ""


class FirstRecords(Protocol):
    """A connection to the records."""

    def look_up(self, offsets: Mapping[Partition, int]) -> Found:
        """
        Return the timestamp of the first record at or behind each offset.

        Partitions without such a record, or that cannot be read now, are left out.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def first_records_at(bootstrap_servers: str, *, read_committed: bool) -> FirstRecords:
    """Connect with the credentials of this process's environment. Raises ReadFailed."""
    address = address_of(bootstrap_servers)
    kind = FirstRotaRecords if is_rota(address) else FirstKafkaRecords
    return kind(address, read_committed=read_committed)


class FirstRotaRecords(FirstRecords):
    """Records of Rota's own log."""

    def __init__(self, address: str, *, read_committed: bool) -> None:
        self._reader = rota.LogReader(address, read_committed=read_committed)

    @override
    def look_up(self, offsets: Mapping[Partition, int]) -> Found:
        try:
            found = self._reader.fetch(offsets, max_wait_ms=0, partition_max_bytes=FETCH_BYTES)
        except rota.errors.RotaError as error:
            return Found({}, str(error))
        times_ms = {
            (each.topic, each.partition): each.batches[0].timestamps_ms[0] for each in found if each.batches
        }
        return Found(times_ms, next((str(each.error) for each in found if each.error is not None), ""))

    @override
    def close(self) -> None:
        self._reader.close()


class FirstKafkaRecords(FirstRecords):
    """A consumer outside of any group, which commits nothing."""

    def __init__(self, address: str, *, read_committed: bool) -> None:
        self._problem = f"no broker has answered for {LOOK_UP_S:.0f} s"
        self._consumer = Consumer(
            {
                **configuration(address, os.environ),
                "group.id": "of-no-group",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "queued.min.messages": 1,
                # Its default of a second would be waited for when another partition has filled the queue.
                "fetch.queue.backoff.ms": 10,
                "max.partition.fetch.bytes": FETCH_BYTES,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )
        self._clock_s = system_clocks().monotonic_s

    def _on_error(self, error: KafkaError) -> None:
        self._problem = error.str()

    @override
    def look_up(self, offsets: Mapping[Partition, int]) -> Found:
        left = {each: TopicPartition(*each, offset) for each, offset in offsets.items()}
        times_ms: dict[Partition, int] = {}
        problem = ""
        deadline_s = self._clock_s() + LOOK_UP_S
        self._consumer.assign(list(left.values()))
        while left and self._clock_s() < deadline_s:
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            answered = left.pop((message.topic() or "", message.partition() or 0), None)
            if answered is None:
                continue
            self._consumer.incremental_unassign([answered])
            error, (kind, at_ms) = message.error(), message.timestamp()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                problem = f"{answered.topic}-{answered.partition} cannot be read ({error.str()})"
            elif error is None and kind != TIMESTAMP_NOT_AVAILABLE:
                times_ms[answered.topic, answered.partition] = at_ms
        self._consumer.unassign()
        return Found(times_ms, problem or (self._problem if left else ""))

    @override
    def close(self) -> None:
        self._consumer.close()
