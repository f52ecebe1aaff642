"""Retention: the new start offset of a partition. Called by the shell with the stored sizes of its oldest batches."""

from collections.abc import Sequence
from typing import NamedTuple

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.batch import Header
from rota_coordinator.core.log.config import FOR_EVER
from rota_coordinator.core.log.partition import Partition


class Oldest(NamedTuple):
    """The header of one of a partition's oldest batches, and its stored size in bytes."""

    header: Header
    bytes: int


def new_start(partition: Partition, oldest: Sequence[Oldest], total_bytes: int, now_ms: WallMs) -> int:
    """
    Return the start offset after retention, which removes whole batches from the oldest on.

    As in Kafka, a batch is removed when its latest record exceeds the retention time, or when the remaining batches
    still reach the retention size.
    """
    start, size = partition.start, total_bytes
    for header, size_of_batch in oldest:
        if header.next_offset > partition.last_stable_offset:
            break
        if header.next_offset > start:
            too_old = partition.retention_ms != FOR_EVER and (
                now_ms - header.max_timestamp_ms > partition.retention_ms
            )
            too_much = partition.retention_bytes != FOR_EVER and (
                size - size_of_batch >= partition.retention_bytes
            )
            if not (too_old or too_much):
                break
            start = header.next_offset
        size -= size_of_batch
    return start
