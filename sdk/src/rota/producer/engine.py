"""The engine below `Producer`; implemented by `rota_blocking.py` and `kafka_engine.py`."""

from collections.abc import Sequence
from typing import Protocol

from rota.metadata import GroupMetadata
from rota.offsets import Offsets
from rota.producer.futures import SendFuture, SentMany
from rota.producer.pipeline import PreparedRecord
from rota.records import Headers


class Engine(Protocol):
    """Every call may be made from any thread, and blocks up to `max_block_ms`."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> SendFuture:
        """Send a checked record."""
        ...

    def send_all(self, records: Sequence[PreparedRecord]) -> SentMany:
        """Hand over many, one by one."""
        ...

    def send_many(
        self, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
    ) -> SentMany:
        """Hand over many of one topic."""
        ...

    def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        ...

    def flush(self, timeout_s: float | None) -> None:
        """Wait until everything is decided."""
        ...

    def close(self, timeout_s: float | None) -> None:
        """Flush, and end."""
        ...

    def init_transactions(self) -> None:
        """Become the only producer of the transactional id."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def commit(self) -> None:
        """Commit it."""
        ...

    def abort(self) -> None:
        """Abort it."""
        ...

    def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Make offsets part of it."""
        ...
