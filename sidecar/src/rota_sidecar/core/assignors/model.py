"""Input and output of assignors. There is no object per partition, so that a million partitions fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the backend describes it."""

    partitions: int
    # Racks of each partition's replicas, by its number; empty: the backend knows none.
    racks: Sequence[frozenset[str]] = ()
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Subscription of one member, as it joined."""

    topics: Sequence[str]
    # Owned partitions by topic, and their generation; NO_GENERATION: unknown.
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack: str = ""
    # Arrival rates in records per second, for each partition of `owned`; empty: not measured.
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)
    # Arrival rates of partitions that the member released recently, by topic and number.
    former: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Members by member id, and the existing topics to which they subscribe."""

    members: Mapping[str, Subscriber]
    topics: Mapping[str, Topic]


# Partition numbers by member id and topic. Every member has an entry.
Plan = Mapping[str, Mapping[str, Sequence[int]]]


class Assignor(Protocol):
    """
    Assignment strategy. A custom class is found by the entry-point group `rota.assignors`, and created without arguments.

    Invariant: `assign` depends on its argument only. It must not read clocks or draw random numbers, because another leader
    must compute the same plan.
    """

    # Name that members offer in JoinGroup, and that Kafka's tools show.
    name: str
    # True: members keep their partitions during a rebalance. Then a plan assigns no partition that another member still
    # owns: it is revoked in one rebalance and assigned in the next.
    cooperative: bool

    def assign(self, group: Group) -> Plan:
        """Assign each partition of each subscribed topic to one subscriber, or withhold it for one rebalance."""
        ...
