"""
Port between the commands and the engines' adapters.

Records and groups are two protocols, because they may be in two systems: records in Kafka, groups with Rota's coordinator.
Adapters raise `Failure` or one of `rota.errors`; every call ends within the connection's timeout.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from rota import errors
from rota.records import Record, TopicPartition
from rota_cli.clusters.model import (
    Check,
    Committed,
    Group,
    ListedGroup,
    OffsetRange,
    Topic,
    TopicConfig,
)
from rota_cli.errors import GROUP_SUBSCRIBED_TO_TOPIC
from rota_cli.output.units import format_partitions

if TYPE_CHECKING:
    from rota.producer.api import Producer
    from rota.producer.options import OnDelivery

Offsets = Mapping[TopicPartition, int]


class Records(Protocol):
    """Topics and their records."""

    def topics(self, names: Sequence[str] = ()) -> list[Topic]:
        """Return all topics, or those named; raise NotFound for an unknown one."""
        ...

    def create(self, topic: Topic) -> None:
        """Create a topic; raise if it exists."""
        ...

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Increase the number of partitions of a topic to this total."""
        ...

    def alter(self, topic: str, config: TopicConfig) -> None:
        """Change the configuration of a topic; what is None stays as it is."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all their records."""
        ...

    def delete_records(self, partition: TopicPartition, before: int) -> int:
        """Delete all records of a partition before an offset; return its new log start offset."""
        ...

    def ranges(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetRange]:
        """Return start and end offsets; with read_committed the end is the last stable offset."""
        ...

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offsets at or after a time (ms); NO_OFFSET where all records are older."""
        ...

    def timestamps(self, offsets: Offsets, *, read_committed: bool = False) -> dict[TopicPartition, int]:
        """Return timestamps (ms) of the first records at or after these offsets; omit partitions without one."""
        ...

    def unreadable(self, offsets: Offsets) -> Offsets:
        """Return, for each offset with an unreadable batch, the offset after that batch; empty on Kafka."""
        ...

    def read(self, offsets: Offsets, *, read_committed: bool) -> Iterator["FetchResult"]:
        """Fetch from these offsets on, without end; a result may be empty."""
        ...

    def producer(self, on_delivery: "OnDelivery") -> "Producer":
        """Create a producer that calls `on_delivery` for each record. The caller closes it."""
        ...

    def transactional_producer(self, transactional_id: str) -> "Producer":
        """Create a transactional producer. The caller initializes its transactions and closes it."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Records of one or several partitions, and the next offset to fetch of each."""

    records: Sequence[Record]
    next_offsets: Offsets


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """State of a group at one time; `reason` is the trigger of its last rebalance, empty if unknown."""

    group: Group
    timestamp_ms: int
    reason: str = ""


class Groups(Protocol):
    """Groups, as their coordinator describes and changes them."""

    def list_all(self) -> Sequence[ListedGroup]: ...

    def describe(self, group_id: str) -> Group:
        """Describe a group; the state of an unknown group is Dead."""
        ...

    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        """Return all committed offsets of a group."""
        ...

    def alter(self, group_id: str, offsets: Offsets) -> None:
        """Set offsets of a group without members; creates an unknown group."""
        ...

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[str]:
        """Delete committed offsets; return the topics to which members subscribe: their offsets are kept."""
        ...

    def delete(self, group_id: str) -> None:
        """Delete a group without members, with its offsets."""
        ...

    def watch(self, group_id: str, *, every_s: float) -> Iterator[GroupSnapshot]:
        """
        Yield the group now and after each change, without end. `every_s` is the polling interval where the engine
        does not push.
        """
        ...

    def health(self) -> Iterator[Check]:
        """Check the coordinator itself, for `rota doctor`."""
        ...

    @property
    def rebalance_reason_hint(self) -> str:
        """Message that names where to find the trigger of the last rebalance."""
        ...

    def close(self) -> None: ...


def subscribed_topics(codes: Mapping[TopicPartition, int], group_id: str, address: str) -> frozenset[str]:
    """Return the topics whose offsets are kept because members subscribe to them; raise the first other error."""
    for partition, code in codes.items():
        if code not in (0, GROUP_SUBSCRIBED_TO_TOPIC):
            where = f"{format_partitions([partition])} of group {group_id} at {address}"
            raise errors.error_of(code, where)
    return frozenset(partition.topic for partition, code in codes.items() if code)


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
