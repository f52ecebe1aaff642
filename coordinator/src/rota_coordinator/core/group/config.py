"""The limits and times of a group, with Kafka's defaults. Flags of the server fill them in."""

from dataclasses import dataclass

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS

# What no setting raises: everything here lies in one process's memory, and is looked through at times.
GROUPS_MAX = 10_000  # of one process
MEMBERS_MAX = 10_000  # of one group
PENDING_MEMBERS_MAX = 10_000  # of one group: ids that were handed out, and with which nobody has joined yet
PARTITIONS_MAX = 200_000  # of one group: assigned, or with an offset
GROUP_ID_LENGTH_MAX = 249


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings that an administrator may change; the same for all groups of a server."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    # A rebalance of a group that has members stays open at least so long, and a member whose session ended may
    # come back within it: a hundred joins, or one late heartbeat, are then one round, or none.
    rebalance_coalesce_ms: int = 250
    members_max: int = MEMBERS_MAX
    # A member that has never been in a generation waits at most so long for its first one.
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    # In UTF-16 code units, as Kafka counts.
    offset_metadata_length_max: int = 4_096
    offsets_retention_ms: int = 7 * DAY_MS
