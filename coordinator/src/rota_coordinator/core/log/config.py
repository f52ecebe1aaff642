"""The limits and times of the log, with Kafka's defaults where Kafka has them. Flags of the server fill some of them in."""

from dataclasses import dataclass

from rota_coordinator.core.group.config import DAY_MS, MINUTE_MS

FOR_EVER = -1
NAME_LENGTH_MAX = 249
# Kafka's short; clients that count their own epochs stop there too.
EPOCH_MAX = 32_767
# How many batches of a producer may be asked about again, in each partition. Kafka's clients have no more in flight.
REMEMBERED_BATCHES = 5
# How many producer ids one event takes: most producers are made without a write.
PRODUCER_IDS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings that an administrator or a test may change; the same for all topics of a server."""

    partitions_max: int = 10_000  # of one topic
    partitions_total_max: int = 200_000
    batch_bytes_max: int = 1024 * 1024  # of one payload
    retention_ms: int = 7 * DAY_MS  # of topics that ask for the default
    retention_bytes: int = FOR_EVER
    transaction_timeout_max_ms: int = 15 * MINUTE_MS
    epoch_max: int = EPOCH_MAX
    transactional_ids_max: int = 10_000
    producers_expire_ms: int = 7 * DAY_MS  # transactional ids that nobody used for so long are forgotten
    transaction_partitions_max: int = 10_000
    transaction_groups_max: int = 100
    # Of one partition: the one that has been silent for longest is forgotten first, and may begin anew.
    partition_producers_max: int = 2_000
