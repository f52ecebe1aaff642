"""Who is to set what."""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import Holding

Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class Share:
    """What one sidecar is to set, as the owner in that generation."""

    generation: int
    offsets: Offsets


def shares(left: Offsets, holdings: Mapping[str, Holding]) -> Mapping[str, Share]:
    """
    By the names of the sidecars. Who is in an older generation than others may have been overtaken: it is asked for
    nothing, and neither is anybody for a partition that nobody has; both may change with the next reports.
    """
    newest = max((each.generation for each in holdings.values()), default=0)
    found = {
        name: Share(
            held.generation,
            {partition: offset for partition, offset in left.items() if partition in held.partitions},
        )
        for name, held in holdings.items()
        if held.generation == newest
    }
    return {name: share for name, share in found.items() if share.offsets}
