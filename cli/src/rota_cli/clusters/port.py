"""
The port between commands and engines: what a command asks of wherever records and groups are.

Records and groups are two halves, because they may be in two systems: records in Kafka, groups with Rota's coordinator.
Adapters raise `Failure` or one of `rota.errors`, and never wait without a limit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from rota.records import Record, TopicPartition
from rota_cli.clusters.model import Check, Committed, Group, ListedGroup, OffsetRange, Topic

if TYPE_CHECKING:
    from rota.producer.api import Producer
    from rota.producer.options import OnDelivery

Offsets = Mapping[TopicPartition, int]


class Records(Protocol):
    """Topics and what is in them."""

    def topics(self, names: Sequence[str] = ()) -> list[Topic]:
        """All topics, or those; raises NotFound for one that is not there."""
        ...

    def create(self, topic: Topic) -> None:
        """Make one; raises when there is one of that name."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all their records."""
        ...

    def delete_records(self, partition: TopicPartition, before: int) -> int:
        """Delete all records of a partition before an offset; where it begins now."""
        ...

    def ranges(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetRange]:
        """Return start and end offsets; with read_committed the end is the last stable offset."""
        ...

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offsets at or after a time; NO_OFFSET where no record is that late."""
        ...

    def timestamps(self, offsets: Offsets, *, read_committed: bool = False) -> dict[TopicPartition, int]:
        """Return timestamps (ms) of the first records at or after these offsets; omit partitions without one."""
        ...

    def unreadable(self, offsets: Offsets) -> Offsets:
        """Return, for each offset with an unreadable batch, the offset after that batch; empty on Kafka."""
        ...

    def read(self, offsets: Offsets, *, read_committed: bool) -> Iterator["FetchResult"]:
        """Fetch from these offsets on, endlessly; a result may be empty."""
        ...

    def producer(self, on_delivery: "OnDelivery") -> "Producer":
        """Create a producer that calls `on_delivery` for each record. The caller closes it."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Records of one or several partitions, and where each of these is to be read on."""

    records: Sequence[Record]
    next_offsets: Offsets


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at a time; `reason` is what triggered its last rebalance, empty if unknown."""

    group: Group
    timestamp_ms: int
    reason: str = ""


class Groups(Protocol):
    """Groups, seen and changed from outside."""

    def list_all(self) -> Sequence[ListedGroup]: ...

    def describe(self, group_id: str) -> Group:
        """Describe a group; the state of an unknown group is Dead."""
        ...

    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        """Return all committed offsets of a group."""
        ...

    def alter(self, group_id: str, offsets: Offsets) -> None:
        """Set offsets of a group without members; makes the group where there is none."""
        ...

    def delete(self, group_id: str) -> None:
        """Delete a group without members, with its offsets."""
        ...

    def watch(self, group_id: str, *, every_s: float) -> Iterator[GroupSnapshot]:
        """The group now, and again whenever it is different; without end. `every_s`: where one has to look."""
        ...

    def health(self) -> Iterator[Check]:
        """Check the coordinator itself, for `rota doctor`."""
        ...

    @property
    def rebalance_reason_hint(self) -> str:
        """Sentence that says where to find the trigger of the last rebalance."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """Records and groups of one cluster; closes both on exit."""

    records: Records
    groups: Groups

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.records.close()
        self.groups.close()
