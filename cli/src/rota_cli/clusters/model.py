"""Values that the port carries: topics, groups, members, offsets, results of checks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rota.records import TopicPartition
from rota_cli.errors import ExitCode

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Configuration of a topic; None is unknown, or stays as it is."""

    retention_ms: int | None = None
    retention_bytes: int | None = None
    # As in Kafka: delete, compact, or compact,delete.
    cleanup_policy: str | None = None
    delete_retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic."""

    name: str
    partitions: int
    config: TopicConfig = field(default_factory=TopicConfig)


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """
    A group in a list. `protocol_type` is its protocol type: empty where it only stores offsets. `group_type` is Kafka's type
    of group: Classic, or Consumer for the protocol of KIP-848; None if unknown.
    """

    group: str
    state: str
    protocol_type: str
    group_type: str | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscription that a member joined with; it owned `owned` in `generation`, -1 for none."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group and its assignment."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    partitions: Sequence[TopicPartition]
    subscription: Subscription | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator describes it; fields that are None are not reported by this cluster."""

    group: str
    state: str
    protocol_type: str
    strategy: str
    members: Sequence[Member]
    generation: int | None = None
    incarnation: int | None = None
    leader: str | None = None
    coordinator: str | None = None
    group_type: str | None = None

    @property
    def exists(self) -> bool:
        return self.state != DEAD

    @property
    def is_settled(self) -> bool:
        """True if no rebalance is in progress."""
        return self.state in (STABLE, EMPTY, DEAD)


EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"
CLASSIC, CONSUMER = "Classic", "Consumer"


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset (the next offset to read) and its metadata, where that is known."""

    offset: int
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Log start offset (inclusive) to log end offset (exclusive). Invariant: start <= end."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        """Return the offset, or the nearest bound of the range."""
        return min(max(offset, self.start), self.end)


def count_lag(committed: int, log_range: OffsetRange) -> int:
    """Number of uncommitted records; records that retention has deleted do not count."""
    return max(log_range.end - max(committed, log_range.start), 0)


class CheckStatus(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """Check of `rota doctor`, its result, and the remedy in `message`."""

    name: str
    status: CheckStatus
    message: str
    exit_code: ExitCode = ExitCode.DONE
