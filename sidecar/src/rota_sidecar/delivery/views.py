"""What can be seen of deliveries from outside; nothing here changes anything."""

from typing import NamedTuple

from rota_sidecar.delivery.events import Bounds
from rota_sidecar.ledger.batches import Batch
from rota_sidecar.member.partitions import Tenure


class PartitionView(NamedTuple):
    """One partition, for metrics and Fleet."""

    tenure: Tenure
    # The next offset that is handed out; None = where it begins is being found out.
    position: int | None
    # None = nothing is, as far as is known.
    committed: int | None
    bounds: Bounds | None
    in_hand: int
    # Read, and not in hand.
    waiting: int
    # The record at the commit position, in its batch, where it was read.
    first_unresolved: tuple[Batch, int] | None
    # What an application said of that record that reads by itself.
    reported_ms: int | None
    # Why it stands still: a sentence, or nothing.
    stopped: str
