"""Results that a ledger returns to its caller."""

from dataclasses import dataclass
from typing import NamedTuple

from rota_sidecar.core.ledger.batches import BatchSlice


class Judged(NamedTuple):
    """The result of a verdict: the number of records settled, or one message why the verdict is refused."""

    settled: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class DueDeadLetter:
    """A record to write as a dead letter; nothing is committed past it before that is durable."""

    offset: int
    # Slice with this record only.
    batch_slice: BatchSlice
    reason: str
    # Number of deliveries.
    deliveries: int
