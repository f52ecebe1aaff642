"""Who is to set what."""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import OwnedPartitions

Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class ResetOrder:
    """What one sidecar is to set, as the owner in that generation."""

    generation: int
    offsets: Offsets


def reset_orders(left: Offsets, owned_partitions: Mapping[str, OwnedPartitions]) -> Mapping[str, ResetOrder]:
    """
    By the names of the sidecars. Who is in an older generation than others may have been overtaken: it is asked for
    nothing, and neither is anybody for a partition that nobody has; both may change with the next reports.
    """
    newest = max((each.generation for each in owned_partitions.values()), default=0)
    found = {
        name: ResetOrder(
            held.generation,
            {partition: offset for partition, offset in left.items() if partition in held.partitions},
        )
        for name, held in owned_partitions.items()
        if held.generation == newest
    }
    return {name: order for name, order in found.items() if order.offsets}
