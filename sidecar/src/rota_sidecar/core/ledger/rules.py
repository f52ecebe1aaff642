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
    """The growth of the wait before a retry."""

    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of one ledger; constant during its life."""

    ordering: Ordering = Ordering.PARTITION
    # Whether the application takes several records of a partition in its hands and works through them in order;
    # else with Ordering.PARTITION there is one at a time.
    takes_many: bool = True
    in_flight_max: int = 10_000
    # After the first delivery.
    retries: int = 5
    backoff: Backoff = Backoff.EXPONENTIAL
    backoff_ms: int = 500
    backoff_max_ms: int = 60_000
    # Else a record that has failed for good stops its partition.
    has_dead_letters: bool = False
