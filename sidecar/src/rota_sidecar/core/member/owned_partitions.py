"""Partitions that a member owns, and the ownership that it claims in its JoinGroup requests."""

from collections.abc import Iterable, Mapping

from rota_sidecar.core.member.identity import NO_GENERATION, UNKNOWN_INCARNATION, Identity
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure


class OwnedPartitions:
    """Owned partitions, each with its tenure, and the last assignment. Invariant: a partition has at most one tenure."""

    def __init__(self) -> None:
        self.held: dict[Partition, Tenure] = {}
        # `sticky` claims the last assignment, although the member revoked it before it joined.
        self.last_assigned: frozenset[Partition] = frozenset()
        self.last_assigned_generation = NO_GENERATION
        # The same generation while the membership lasts, else NO_GENERATION. A leader may rely on it: a group that is deleted
        # and created again counts its generations from the beginning.
        self.owned_generation = NO_GENERATION
        # The highest incarnation seen so far; a leader on Kafka chooses a higher one for a new group.
        self.incarnation = UNKNOWN_INCARNATION
        self.rates: Mapping[str, Mapping[int, float]] = {}
        self._tenures = 0

    def record_assignment(self, partitions: frozenset[Partition], generation: int, incarnation: int) -> None:
        """Record the assignment of a generation."""
        self.last_assigned, self.last_assigned_generation, self.owned_generation = (
            partitions,
            generation,
            generation,
        )
        self.incarnation = max(self.incarnation, incarnation)

    def forget_generation(self) -> None:
        """Forget the generation after the membership ended: the group may be deleted and created again meanwhile."""
        self.owned_generation = NO_GENERATION

    def begin(self, partitions: Iterable[Partition], identity: Identity) -> Tenure:
        """Own partitions under a new tenure."""
        self._tenures += 1
        tenure = Tenure(self._tenures, identity.member_id, identity.generation, identity.incarnation)
        # Sorted, so that equal assignments lead to equal behaviour.
        self.held.update(dict.fromkeys(sorted(partitions), tenure))
        return tenure

    def end(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Drop partitions; return those that were owned."""
        return frozenset(partition for partition in partitions if self.held.pop(partition, None) is not None)

    def split(
        self, offsets: Mapping[Partition, Offset]
    ) -> tuple[dict[Partition, Offset], frozenset[Partition]]:
        """Split offsets into those that may be committed and the partitions whose tenure has ended."""
        mine = {
            partition: offset
            for partition, offset in offsets.items()
            if (tenure := self.held.get(partition)) is not None and tenure.number == offset.tenure
        }
        return mine, frozenset(offsets.keys() - mine.keys())
