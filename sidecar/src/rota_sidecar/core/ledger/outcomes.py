"""What a ledger answers to those who keep it."""

from dataclasses import dataclass
from typing import NamedTuple

from rota_sidecar.core.ledger.batches import BatchSlice


class Judged(NamedTuple):
    """What came of a verdict: on how many records it was; or why it changed nothing, in one sentence."""

    settled: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class DueDeadLetter:
    """A record that is to be written as a dead letter; nothing is committed past it before that is done."""

    offset: int
    # This record alone.
    batch_slice: BatchSlice
    reason: str
    # All there were.
    deliveries: int
