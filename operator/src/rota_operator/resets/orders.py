"""Distributes the offsets of a reset over the owners of their partitions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import OwnedPartitions
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Of one order, which is one message, and one commit of the sidecar.
PARTITIONS_MAX = 5_000
Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class ResetOrder:
    """Offsets for one sidecar to set, as the owner in `generation`."""

    generation: int
    offsets: Offsets

    def parts(self) -> Iterator["ResetOrder"]:
        """Yield orders of at most PARTITIONS_MAX partitions."""
        ordered = sorted(self.offsets.items())
        for first in range(0, len(ordered), PARTITIONS_MAX):
            yield ResetOrder(self.generation, dict(ordered[first : first + PARTITIONS_MAX]))

    def message(self, request_id: str = "") -> pb.SidecarOrder:
        """Return the order of Fleet, without its id."""
        topics: dict[str, list[pb.PartitionOffset]] = {}
        for partition, offset in sorted(self.offsets.items()):
            found = pb.PartitionOffset(topic=partition.topic, partition=partition.number, offset=offset)
            topics.setdefault(partition.topic, []).append(found)
        reset = pb.ResetOffsets(
            request_id=request_id,
            generation_id=self.generation,
            topics=[pb.TopicOffsets(topic=topic, offsets=found) for topic, found in topics.items()],
        )
        return pb.SidecarOrder(reset_offsets=reset)


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
            {partition: left[partition] for partition in held.partitions if partition in left},
        )
        for name, held in owned_partitions.items()
        if held.generation == newest
    }
    return {name: order for name, order in found.items() if order.offsets}
