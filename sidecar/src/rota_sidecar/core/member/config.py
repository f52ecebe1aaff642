"""What a member is told before it starts, and what may be changed while it runs."""

from dataclasses import dataclass

# Kafka's slack: a join is answered when all others have joined, and then it still has to travel.
JOIN_SLACK_MS = 5_000


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """Stays as it is while the member lives."""

    group_id: str
    client_id: str = "rota"
    # A static member's own name: its partitions wait for it over a restart.
    instance_id: str | None = None
    rack: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    # Of requests that are answered at once.
    request_timeout_ms: int = 30_000
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000

    @property
    def join_timeout_ms(self) -> int:
        """How long a join may be without an answer."""
        return max(self.request_timeout_ms, self.rebalance_timeout_ms + JOIN_SLACK_MS)

    @property
    def heartbeat_timeout_ms(self) -> int:
        """Early enough to find the coordinator again within the session."""
        return max(self.session_timeout_ms // 3, 1)

    @property
    def revoke_timeout_ms(self) -> int:
        """What the application gets to let go: others wait for a rebalance timeout, which began before we heard of it."""
        return max(
            self.rebalance_timeout_ms * 4 // 5 - self.heartbeat_interval_ms, self.rebalance_timeout_ms // 2
        )


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy that the member offers to the group."""

    name: str
    cooperative: bool


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics by name, or all whose whole name matches the pattern."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
