"""Limits and timeouts of a group, with Kafka's defaults. `options` sets them from flags."""

from dataclasses import dataclass

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

# Fixed limits: groups are kept in one process's memory and are iterated over at times.
GROUPS_MAX = 10_000  # of one process
MEMBERS_MAX = 10_000  # of one group
PENDING_MEMBERS_MAX = 10_000  # of one group: assigned member ids that were not used to join yet
PARTITIONS_MAX = 200_000  # of one group: assigned, or with an offset
GROUP_ID_LENGTH_MAX = 249


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings that an administrator may change; they apply to all groups of a coordinator."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    # Minimum duration of a rebalance of a group with members, and the grace period after a session expired: a hundred
    # joins then need one round, and a late heartbeat needs none.
    rebalance_coalesce_ms: int = 250
    members_max: int = MEMBERS_MAX
    # Maximum time that a new member waits for its first generation.
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    # In UTF-16 code units, as Kafka counts.
    offset_metadata_length_max: int = 4_096
    offsets_retention_ms: int = 7 * DAY_MS
    # Maximum time that a commit waits for the store before it is answered; not used by the core.
    commit_timeout_ms: int = 5_000
