"""Interfaces for records of a backend: fetching, looking up offsets, writing dead letters. Used by the delivery driver."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.delivery.events import Bounds, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition

Headers = Sequence[tuple[str, bytes | None]]
# Kafka's default of fetch.max.wait.ms.
WAIT_MS = 500


class FetchRequest(NamedTuple):
    """A fetch of one partition from `offset` on. The result carries the same `delivery_epoch`."""

    delivery_epoch: int
    partition: Partition
    offset: int
    bytes_max: int


class FetchLimits(NamedTuple):
    """Limits of the requests that fetch records; None: the backend's own."""

    # Bytes that the server waits for before it responds.
    min_bytes: int = 1
    # Bytes of a response, at most; the first batch is returned whatever its size.
    max_bytes: int | None = None
    # Time in ms that the server waits for `min_bytes`, at most.
    max_wait_ms: int | None = None

    def wait_ms(self, own_ms: int) -> int:
        """Return the wait in ms: where more than one byte is waited for, the backend's own is not used, and Kafka's default is."""
        if self.max_wait_ms is not None:
            return self.max_wait_ms
        return own_ms if self.min_bytes == 1 else WAIT_MS


UNLIMITED = FetchLimits()

OnFetchResult = Callable[[Read | ReadFailed], None]
"""Callback for the result of a fetch, called on the event loop. The payload of each batch is a `log_pb2.RecordBatch`."""


class Records(Protocol):
    """
    Fetches records and looks up offsets.

    Invariant: each delivery epoch has at most one fetch in progress. Records that were not requested are held only as far
    as a backend's client prefetches, within its limits.
    """

    def fetch(self, request: FetchRequest) -> None:
        """
        Fetch once; the callback gets one Read or one ReadFailed, without a time limit.

        A Read has at least one batch, or none if only the bounds or the next offset changed. Outages of the backend are
        no failure of the fetch: it is retried until the backend answers. A second fetch of the same partition replaces the
        first one, whose result is dropped.
        """
        ...

    def stop(self, delivery_epoch: int) -> None:
        """Cancel the fetch of a delivery epoch; the callback gets no result of it."""
        ...

    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        """
        Return the log start offset and the end offset of each partition; partitions that do not exist are omitted.

        Raises Unreachable, Refused.
        """
        ...

    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, "OffsetAndTimestamp"]:
        """
        Return the first record at or after each timestamp in milliseconds; partitions without one are omitted.

        Raises Unreachable, Refused.
        """
        ...

    async def close(self) -> None:
        """Close connections and threads."""
        ...


class OffsetAndTimestamp(NamedTuple):
    """The offset and the timestamp of a record."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record for a dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class DeadLetterWriter(Protocol):
    """Writes dead letters, at least once."""

    async def write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        """
        Write all of them and wait for the acknowledgement; a failed call may have written some.

        Raises Unreachable, Refused.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


RecordBatch = log_pb2.RecordBatch
