"""Racks: who is near a partition, and whether that matters in a group at all."""

from collections.abc import Iterable, Sequence

from rota_sidecar.core.assignors.model import Topic

Racks = frozenset[str]
NO_RACKS: Racks = frozenset()


def racks_of(topic: Topic) -> Sequence[Racks]:
    """Of each partition; none where the engine named none."""
    known = list(topic.racks[: topic.partitions])
    return known + [NO_RACKS] * (topic.partitions - len(known))


def racks_matter(members: Iterable[str], partitions: Iterable[Racks]) -> bool:
    """Whether some member is near some partitions and not near others."""
    kinds = set(partitions)
    everywhere = NO_RACKS.union(*kinds)
    return not everywhere.isdisjoint(members) and kinds != {everywhere}


def is_rack_local(rack: str, partition: Racks) -> bool:
    """A member without a rack is near everything."""
    return not rack or rack in partition
