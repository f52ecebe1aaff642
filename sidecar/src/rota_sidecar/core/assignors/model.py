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
    # Records a second that arrive in each partition of `owned`, as far as it measured that.
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)
    # The same of partitions that it gave up lately, by their numbers.
    former: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The members by id, and every topic of theirs that exists."""

    members: Mapping[str, Subscriber]
    topics: Mapping[str, Topic]


# By member, by topic: partition numbers. Every member is in it.
Plan = Mapping[str, Mapping[str, Sequence[int]]]


class Assignor(Protocol):
    """
    One strategy. A class of one's own is found by the entry-point group `rota.assignors`, and made without arguments.

    It must not read clocks or draw random numbers: the leader of the next round has to come to the same plan.
    """

    # What members offer, and Kafka's tools show.
    name: str
    # True: members keep their partitions during a rebalance. Then a plan assigns no partition that another member still
    # owns: it is revoked in one rebalance and assigned in the next.
    cooperative: bool

    def assign(self, group: Group) -> Plan:
        """Give each partition of each subscribed topic to one subscriber, or hold it back for a round."""
        ...
