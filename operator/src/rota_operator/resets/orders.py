"""Distributes the offsets of a reset over the owners of their partitions."""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import OwnedPartitions

Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class ResetOrder:
    """Offsets for one sidecar to set, as the owner in `generation`."""

    generation: int
    offsets: Offsets


def reset_orders(left: Offsets, owned_partitions: Mapping[str, OwnedPartitions]) -> Mapping[str, ResetOrder]:
    """
    Return the orders by sidecar name.

    Members in an older generation than others may have lost their partitions: they get no order, and neither does anyone for
    a partition without an owner. Both may change with the next reports.
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
