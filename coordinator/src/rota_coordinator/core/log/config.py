"""
Limits and timeouts of the log, with Kafka's defaults where Kafka has them. `options` sets some of them from flags.
"""

from dataclasses import dataclass

from rota_coordinator.core.group.config import DAY_MS, MINUTE_MS

FOR_EVER = -1
NAME_LENGTH_MAX = 249
# The maximum of Kafka's 16-bit producer epoch.
EPOCH_MAX = 32_767
# Batches per producer and partition that are recognized as duplicates; Kafka's clients have at most 5 in flight.
REMEMBERED_BATCHES = 5
# Kafka's delete.retention.ms, of topics created without one.
DELETE_RETENTION_MS = DAY_MS
# Producer ids that one event allocates, so that most producers are registered without a write.
PRODUCER_IDS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings that an administrator or a test may change; they apply to all topics of a coordinator."""

    partitions_max: int = 10_000  # of one topic
    partitions_total_max: int = 200_000
    batch_bytes_max: int = 1024 * 1024  # of one payload, as sent and decompressed
    retention_ms: int = 7 * DAY_MS  # of topics created without a retention
    retention_bytes: int = FOR_EVER
    transaction_timeout_max_ms: int = 15 * MINUTE_MS
    epoch_max: int = EPOCH_MAX
    transactional_ids_max: int = 10_000
    producers_expire_ms: int = 7 * DAY_MS  # an unused transactional id expires after this
    transaction_partitions_max: int = 10_000
    transaction_groups_max: int = 100
    # Producers remembered per partition; the least recently active one is forgotten first and may start a new sequence.
    partition_producers_max: int = 2_000
    # A batch is compacted when it is older than this, Kafka's min.compaction.lag.ms and segment.ms in one.
    min_compaction_lag_ms: int = MINUTE_MS
    # A pass of compaction begins when this share of a partition was appended since the last one, as in Kafka.
    min_cleanable_dirty_ratio: float = 0.5
    # Keys that a pass indexes, of some 200 bytes of memory each; a longer dirty section takes several passes.
    compaction_keys_max: int = 200_000
    # Compaction keeps the last batches of an idempotent producer for this long: Kafka's producer.id.expiration.ms.
    sequences_expire_ms: int = DAY_MS
