"""What the delivery's shell asks of an engine about records: to read them, to write dead letters, to look up offsets."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.delivery.events import Bounds, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition

Headers = Sequence[tuple[str, bytes | None]]


class FetchRequest(NamedTuple):
    """What is to be read; `delivery_epoch` comes back with it."""

    delivery_epoch: int
    partition: Partition
    offset: int
    bytes_max: int


OnFetchResult = Callable[[Read | ReadFailed], None]
"""Called on the event loop. The payload of each batch is its `log_pb2.RecordBatch`."""


class Records(Protocol):
    """Reads records. Holds nothing that was not asked for, but what an engine's client reads ahead within its bounds."""

    def fetch(self, request: FetchRequest) -> None:
        """
        Read once, however long that takes: one Read with at least one batch, or with none when only the bounds or the
        next offset are news; or one ReadFailed. What can be reached again by itself is not failed but waited for.
        A ledger has one fetch under way; another one for the same partition ends the one before in silence.
        """
        ...

    def stop(self, delivery_epoch: int) -> None:
        """Nothing is wanted for it any more."""
        ...

    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        """Starts, and ends that readers may see; those that are not there are left out. Raises Unreachable, Refused."""
        ...

    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, "OffsetAndTimestamp"]:
        """The first records at or after these times; left out where there is none. Raises Unreachable, Refused."""
        ...

    async def close(self) -> None:
        """End its connections and threads."""
        ...


class OffsetAndTimestamp(NamedTuple):
    """A record, by where and when it is."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record as it goes to the dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class DeadLetterWriter(Protocol):
    """Writes dead letters."""

    async def write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        """All of them, flushed; may write them twice. Raises Unreachable, Refused."""
        ...

    async def close(self) -> None:
        """End its connection."""
        ...


RecordBatch = log_pb2.RecordBatch
