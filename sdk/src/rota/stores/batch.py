"""A tenure, and the offsets and state of one transaction of it. Pure; the stores perform the writes."""

from dataclasses import dataclass

from rota.metadata import GroupMetadata
from rota.offsets import Offsets, completed
from rota.stores.errors import NotAssigned, Partition, StoreError
from rota.stores.flows import Flow, Save, check_owner, save_offsets
from rota.stores.tables import Tables

# Kafka's limit, so that stored offsets can be committed there.
METADATA_LENGTH_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Tenure:
    """
    The partitions that a member received in one generation, with the fence raised for them.

    `positions` has the next offset to read; None where the store has no offset yet, and the group's own offset or the reset
    policy applies. It follows the commits of this tenure. Threads that save offsets of the same partition must not share it.
    """

    group: GroupMetadata
    positions: dict[Partition, int | None]


class Batch:
    """Collects offsets and state of one transaction; they are written when its block ends."""

    def __init__(self, tables: Tables, tenure: Tenure) -> None:
        self.tables = tables
        self.tenure = tenure
        self.is_open = True
        self._saves: dict[Partition, Save] = {}
        self._written_after_check: list[Flow[None]] = []
        self._included: set[Partition] = set()

    @property
    def group_id(self) -> str:
        return self.tenure.group.group_id

    def save(self, offsets: Offsets, *, rewind: bool = False) -> None:
        """
        Store these offsets, each the next one to read, with the results of this block.

        An offset below the stored one is refused unless `rewind` allows records to be processed again. The metadata of
        `rota.OffsetAndMetadata` is stored too; its leader epoch is not.
        """
        self.check_open()
        for (topic, index), given in offsets.items():
            offset, metadata, _ = completed(given)
            if offset < 0:
                raise StoreError(f"{offset} is not an offset: use the next offset to read, 0 or more")
            if len(metadata) > METADATA_LENGTH_MAX:
                raise StoreError(
                    f"the metadata of an offset has {len(metadata)} characters, the limit is {METADATA_LENGTH_MAX}: "
                    "store more in a table of your own, in the same transaction"
                )
            self.include((topic, index))
            self._saves[topic, index] = Save(offset, metadata, rewind)

    def write_after_check(self, partition: Partition, flow: Flow[None]) -> None:
        """Run this after the check of the fence: a late owner does not reach it."""
        self.check_open()
        self.include(partition)
        self._written_after_check.append(flow)

    def include(self, partition: Partition) -> None:
        """Require that this partition is still the owner's when the batch is committed."""
        topic, index = partition
        if (topic, index) not in self.tenure.positions:
            raise NotAssigned(self.group_id, partition)
        self._included.add((topic, index))

    def fenced_partitions(self) -> set[Partition]:
        """Return the partitions whose fence is checked: those with offsets or state, or all if there are none."""
        return self._included or set(self.tenure.positions)

    def save_offsets(self) -> Flow[None]:
        """Write offsets and state after the application's own results and the check of the fence."""
        yield from save_offsets(
            self.tables, self.tenure.group, self.tenure.positions, self._saves, self.fenced_partitions()
        )
        for flow in self._written_after_check:
            yield from flow

    def check_owner(self) -> Flow[None]:
        """Raise StoreFenced if another member owns a partition of this batch by now."""
        return check_owner(self.tables, self.tenure.group, self.fenced_partitions())

    def on_committed(self) -> None:
        """Update the positions of the tenure to those in the store."""
        self.tenure.positions.update({partition: save.offset for partition, save in self._saves.items()})

    def check_open(self) -> None:
        """Raise if the block has ended."""
        if not self.is_open:
            raise StoreError(
                f"this transaction of group {self.group_id} has ended: call its methods inside its block"
            )


def check_member(group: GroupMetadata) -> None:
    """Raise StoreError for a member without a generation, which no fence could hold."""
    if group.generation_id < 0 or group.incarnation < 0:
        raise StoreError(
            f"group {group.group_id} has assigned no generation to this consumer, so no fence is possible: subscribe "
            "instead of assigning manually, or pass a GroupMetadata with an incarnation and generation of your own"
        )
