"""Engine interface of `Producer`; implemented by `rota_blocking.py` and `kafka_engine.py`."""

from collections.abc import Sequence
from typing import Protocol

from rota.metadata import GroupMetadata
from rota.offsets import Offsets
from rota.producer.batches import Outcome
from rota.producer.futures import SendFuture, SentMany
from rota.records import Headers


class Engine(Protocol):
    """Producer operations. Every call may be made from any thread, and blocks up to `max_block_ms`."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> SendFuture:
        """Queue a validated record."""
        ...

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> tuple[Outcome, int]:
        """Queue a validated record; return its batch and its index there, from which any kind of future is created."""
        ...

    def send_many(
        self, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
    ) -> SentMany:
        """Queue many records of one topic."""
        ...

    def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        ...

    def flush(self, timeout_s: float | None) -> None:
        """Wait until all records have an outcome."""
        ...

    def close(self, timeout_s: float | None) -> None:
        """Flush and close."""
        ...

    def init_transactions(self) -> None:
        """Register the transactional id, fencing earlier producers of it."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def commit(self) -> None:
        """Commit the transaction."""
        ...

    def abort(self) -> None:
        """Abort the transaction."""
        ...

    def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Add offsets to the transaction."""
        ...
