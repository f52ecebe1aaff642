"""Racks of partitions, and whether they matter in a group."""

from collections.abc import Iterable, Sequence

from rota_sidecar.core.assignors.model import Topic

Racks = frozenset[str]
NO_RACKS: Racks = frozenset()


def racks_of(topic: Topic) -> Sequence[Racks]:
    """Return the racks of each partition; empty where the backend names none."""
    known = list(topic.racks[: topic.partitions])
    return known + [NO_RACKS] * (topic.partitions - len(known))


def racks_matter(members: Iterable[str], partitions: Iterable[Racks]) -> bool:
    """Return True if some member shares a rack with some partitions and not with others."""
    kinds = set(partitions)
    everywhere = NO_RACKS.union(*kinds)
    return not everywhere.isdisjoint(members) and kinds != {everywhere}


def is_rack_local(rack: str, partition: Racks) -> bool:
    """Return True if the partition has a replica in the rack; a member without a rack is local to all."""
    return not rack or rack in partition
