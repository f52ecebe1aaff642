"""
Readers of a state topic: committed records of one partition, from the log start to its end.

`topic_store` calls `read` after it has fenced the partition's former owner, whose open transaction is aborted then. Transactions of
other partitions may be open: the reader waits for their end, because it is shown nothing behind them.
"""

from collections.abc import Iterator
from typing import Protocol

from rota.addresses import is_rota
from rota.clocks import system_clocks
from rota.log_reader import START, LogReader
from rota.producer.options import Options
from rota.security import credentials_of
from rota.stores.errors import StateUnreadable


class StateReader(Protocol):
    """Reads partitions of a topic."""

    def read(self, partition: int, within_s: float) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield keys and values up to the end at the time of the call. Raises StateUnreadable after `within_s` without progress."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def reader_of(address: str, options: Options, topic: str) -> StateReader:
    """Return the reader of a topic; `options` has the settings of its connections."""
    if is_rota(address):
        return RotaReader(address, options, topic)
    # confluent-kafka is optional.
    from rota.stores.state_reader_kafka import KafkaReader

    return KafkaReader(address, options, topic)


class RotaReader:
    """Reads a topic of Rota's log."""

    def __init__(self, address: str, options: Options, topic: str) -> None:
        self._reader = LogReader(address, credentials=credentials_of(options), read_committed=True)
        self._topic = topic
        self._clock = system_clocks().monotonic_s

    def read(self, partition: int, within_s: float) -> Iterator[tuple[bytes | None, bytes | None]]:
        here = (self._topic, partition)
        (offset,) = self._reader.offsets_at([here], START).values()
        end: int | None = None
        deadline_s = self._clock() + within_s
        while end is None or offset < end:
            (part,) = self._reader.fetch({here: offset}, max_wait_ms=100)
            if part.error is not None:
                raise part.error
            end = part.high_watermark if end is None else end
            for record in part:
                yield record.key, record.value
            if part.next_offset > offset:
                offset, deadline_s = part.next_offset, self._clock() + within_s
            elif offset < end and self._clock() > deadline_s:
                raise StateUnreadable(self._topic, partition, offset)

    def close(self) -> None:
        self._reader.close()
