"""Settings of a ledger: ordering, bounds, retries."""

from dataclasses import dataclass
from enum import Enum

from rota_sidecar.core.ledger.batches import Ordering


class Verdict(Enum):
    """The application's decision about a record."""

    ACK = "ack"
    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    SKIP = "skip"


class Backoff(Enum):
    """Growth of the delay before a retry."""

    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of one ledger. Invariant: constant for its life."""

    ordering: Ordering = Ordering.PARTITION
    # True: the application accepts several records of a partition and processes them in order.
    # False: with Ordering.PARTITION one record is in flight at a time.
    takes_many: bool = True
    in_flight_max: int = 10_000
    # Number of deliveries after the first one.
    retries: int = 5
    backoff: Backoff = Backoff.EXPONENTIAL
    backoff_ms: int = 500
    backoff_max_ms: int = 60_000
    # False: a record that failed permanently stops its partition.
    has_dead_letters: bool = False
