"""The partitions that a member has, and what it claims of them when it joins."""

from collections.abc import Iterable, Mapping

from rota_sidecar.core.member.identity import NO_GENERATION, UNKNOWN_INCARNATION, Identity
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure


class OwnedPartitions:
    """What it has now, and what it had been given last."""

    def __init__(self) -> None:
        self.held: dict[Partition, Tenure] = {}
        # `sticky` claims what it was given last, though it gave that up before it joined.
        self.last_assigned: frozenset[Partition] = frozenset()
        self.last_assigned_generation = NO_GENERATION
        # The same while the membership lasts. What it tells of it is then true of this life of the group, and the
        # leader may rely on it: a group that was deleted counts its generations from the beginning.
        self.owned_generation = NO_GENERATION
        # The highest that was ever heard of: a leader on Kafka mints above it.
        self.incarnation = UNKNOWN_INCARNATION
        self.rates: Mapping[str, Mapping[int, float]] = {}
        self._tenures = 0

    def record_assignment(self, partitions: frozenset[Partition], generation: int, incarnation: int) -> None:
        """The group's plan has come."""
        self.last_assigned, self.last_assigned_generation, self.owned_generation = (
            partitions,
            generation,
            generation,
        )
        self.incarnation = max(self.incarnation, incarnation)

    def forget_generation(self) -> None:
        """The membership has ended; whoever comes next may find another group under this name."""
        self.owned_generation = NO_GENERATION

    def begin(self, partitions: Iterable[Partition], identity: Identity) -> Tenure:
        """Have these from now on."""
        self._tenures += 1
        tenure = Tenure(self._tenures, identity.member_id, identity.generation, identity.incarnation)
        # In order, so that two members that were told the same do the same.
        self.held.update(dict.fromkeys(sorted(partitions), tenure))
        return tenure

    def end(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Have these no more; those of them that it had."""
        return frozenset(partition for partition in partitions if self.held.pop(partition, None) is not None)

    def split(
        self, offsets: Mapping[Partition, Offset]
    ) -> tuple[dict[Partition, Offset], frozenset[Partition]]:
        """The offsets that may be committed, and the partitions whose tenure is over or was another one."""
        mine = {
            partition: offset
            for partition, offset in offsets.items()
            if (tenure := self.held.get(partition)) is not None and tenure.number == offset.tenure
        }
        return mine, frozenset(offsets.keys() - mine.keys())
