"""Settings of the delivery core; Fleet's orders may replace them while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rota_sidecar.core.ledger.rules import Rules


class CommitMode(Enum):
    """The party that commits, and when."""

    # Every interval, what has verdicts.
    PERIODIC = "periodic"
    # As soon as there are verdicts.
    SYNC = "sync"
    # The application's producer, in its transactions.
    TRANSACTIONAL = "transactional"
    # The application's own store.
    EXTERNAL = "external"


class Reset(Enum):
    """The position without a commit, and when the committed offset is no longer in the log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    # Not at all: the partition stops, and says so.
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Settings of a group's deliveries. Orders of Fleet replace it whole."""

    group_id: str
    rules: Rules = field(default_factory=Rules)
    # Lanes busy at a time: partitions, or records where those of a partition need not wait for each other.
    concurrency: int = 64
    # Without a verdict on what it holds for this long the application loses its partitions.
    processing_timeout_ms: int = 120_000
    commit_mode: CommitMode = CommitMode.PERIODIC
    commit_interval_ms: int = 5_000
    initial_offset: Reset = Reset.EARLIEST
    on_offset_expired: Reset = Reset.NONE
    dead_letter_topic: str = ""
    # Records a second; 0 = no limit.
    rate_max: int = 0
    # Topics with a higher number go first; 0 for those that are not here.
    priorities: Mapping[str, int] = field(default_factory=dict)
    # Read ahead for each partition, in bytes; and for all of them together.
    ahead_bytes_max: int = 1 << 20
    ahead_bytes_total_max: int = 16 << 20
    # Keeps membership and reads nothing.
    suspended: bool = False
