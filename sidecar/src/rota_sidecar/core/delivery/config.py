"""Settings of the delivery core. Fleet may replace them while the sidecar runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rota_sidecar.core.ledger.rules import Rules


class CommitMode(Enum):
    """The party that commits, and the time of its commits."""

    # The sidecar commits completed records every `commit_interval_ms`.
    PERIODIC = "periodic"
    # The sidecar commits after each verdict.
    SYNC = "sync"
    # The application's producer commits in its transactions.
    TRANSACTIONAL = "transactional"
    # The application stores its positions itself.
    EXTERNAL = "external"


class Reset(Enum):
    """Start position without a committed offset, or when the committed offset is no longer in the log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    # None: the partition stops and reports an error.
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Settings of a group's deliveries. Fleet replaces them as a whole."""

    group_id: str
    rules: Rules = field(default_factory=Rules)
    # Limit of busy lanes: of partitions, or of records where records of a partition are processed in parallel.
    concurrency: int = 64
    # An application that gives no verdict on a record in flight for this long loses its partitions.
    processing_timeout_ms: int = 300_000
    commit_mode: CommitMode = CommitMode.PERIODIC
    commit_interval_ms: int = 5_000
    initial_offset: Reset = Reset.EARLIEST
    on_offset_expired: Reset = Reset.NONE
    dead_letter_topic: str = ""
    # Records per second; 0: no limit.
    rate_max: int = 0
    # Topics with a higher priority are dispatched first; topics that are left out have priority 0.
    priorities: Mapping[str, int] = field(default_factory=dict)
    # Prefetch limit in bytes for each partition, and for all partitions together.
    ahead_bytes_max: int = 1 << 20
    ahead_bytes_total_max: int = 16 << 20
    # True: the member stays in the group and fetches nothing.
    suspended: bool = False
