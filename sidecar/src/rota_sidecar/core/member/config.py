"""Settings of a member: fixed ones, its subscription, and the strategies that it offers."""

from dataclasses import dataclass

# As Kafka's consumer: added to the rebalance timeout, because the coordinator answers a join when all members have joined.
JOIN_SLACK_MS = 5_000
# Heartbeats in a session, at least: the loss of one must not end the session.
HEARTBEATS_MIN = 3


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """Settings of one member; fixed for its lifetime."""

    group_id: str
    client_id: str = "rota"
    # Kafka's `group.instance.id`: a static member keeps its partitions over a restart.
    instance_id: str | None = None
    rack: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    # For requests that the coordinator answers immediately; join and sync use `join_timeout_ms`.
    request_timeout_ms: int = 30_000
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000

    @property
    def join_timeout_ms(self) -> int:
        """Timeout in ms of a JoinGroup or SyncGroup request."""
        return max(self.request_timeout_ms, self.rebalance_timeout_ms + JOIN_SLACK_MS)

    @property
    def heartbeat_interval_max_ms(self) -> int:
        """Highest valid heartbeat interval: a third of the session."""
        return self.session_timeout_ms // HEARTBEATS_MIN

    @property
    def heartbeat_timeout_ms(self) -> int:
        """Timeout in ms of a heartbeat: a third of the session, so that the coordinator can be found again within it."""
        return max(self.session_timeout_ms // 3, 1)

    @property
    def revoke_timeout_ms(self) -> int:
        """Time in ms in which the application must release partitions; shorter than the rebalance timeout, which began earlier."""
        return max(
            self.rebalance_timeout_ms * 4 // 5 - self.heartbeat_interval_ms, self.rebalance_timeout_ms // 2
        )


@dataclass(frozen=True, slots=True)
class Strategy:
    """An assignment strategy that the member offers to the group."""

    name: str
    cooperative: bool


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription: topic names, or a regular expression that must match a whole topic name."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
