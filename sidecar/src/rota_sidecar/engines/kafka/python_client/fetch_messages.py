"""Kafka's Fetch request for a plan of `fetcher.py`, and the decoded parts of its response. Pure; called by `reading.py`."""

import uuid
from collections.abc import Mapping, Sequence

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse

from rota_sidecar.engines.kafka.connection import MESSAGE_BYTES_MAX
from rota_sidecar.engines.kafka.python_client.fetcher import Part, PartitionFetch, Plan, bytes_max
from rota_sidecar.engines.kafka.python_client.record_set import Aborted, Decoded, decode
from rota_sidecar.engines.kafka.read_options import ReadOptions
from rota_sidecar.engines.kafka.tracks import AHEAD_BYTES_TOTAL_MAX

# The broker waits this long for records: while it waits, further partitions need another connection.
WAIT_MS = 200
# A request for many partitions costs some 10 µs for each, and is repeated after the wait.
WAIT_MS_EACH = 1
# Limits of a response, and of one partition in it, in bytes.
BYTES_MAX = 4 << 20
PARTITION_BYTES_MAX = 512 << 10
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Key = tuple[bytes, int]
"""A topic's id and the number of a partition."""


def request_for(plan: Plan, options: ReadOptions) -> FetchRequest:
    """Return the request for the partitions of a plan."""
    limits = options.limits
    topics: dict[bytes, list[object]] = {}
    for fetch, offset in zip(plan.fetches, plan.offsets, strict=True):
        topics.setdefault(fetch.topic_id, []).append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=fetch.partition.number,
                current_leader_epoch=fetch.leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=fetch.fetched_epoch,
                partition_max_bytes=min(limits.max_bytes or PARTITION_BYTES_MAX, PARTITION_BYTES_MAX),
            )
        )
    return FetchRequest(
        max_wait_ms=0 if plan.is_urgent else limits.wait_ms(max(WAIT_MS, len(plan.fetches) * WAIT_MS_EACH)),
        min_bytes=limits.min_bytes,
        max_bytes=min(limits.max_bytes or BYTES_MAX, MESSAGE_BYTES_MAX // 2),
        isolation_level=READ_COMMITTED if options.read_committed else READ_UNCOMMITTED,
        topics=[
            FetchRequest.FetchTopic(topic_id=uuid.UUID(bytes=topic_id), partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        forgotten_topics_data=[],
    )


def parts_of(response: FetchResponse, plan: Plan, options: ReadOptions) -> Mapping[Key, Part]:
    """
    Decode the parts of a response.

    Records beyond the memory limit of all partitions are left out: small batches may be large ones, compressed. The next
    request begins with them.
    """
    asked: dict[Key, tuple[PartitionFetch, int]] = {
        (fetch.topic_id, fetch.partition.number): (fetch, offset)
        for fetch, offset in zip(plan.fetches, plan.offsets, strict=True)
    }
    found: dict[Key, Part] = {}
    left = AHEAD_BYTES_TOTAL_MAX
    has_records = False
    for topic in response.responses:
        for each in topic.partitions:
            key = topic.topic_id.bytes, each.partition_index
            if key not in asked:
                continue
            fetch, offset = asked[key]
            part = _part(each, options)
            if not part.error_code and left > 0:
                decoded = _decoded(each, offset, bytes_max(fetch), options)
                if each.records and not has_records:
                    _check_progress(decoded, offset)
                left -= sum(batch.size for batch in decoded.batches)
                part = part._replace(decoded=decoded)
            has_records = has_records or bool(each.records)
            found[key] = part
    return found


def size_of(response: FetchResponse) -> int:
    """Return the bytes of all records in a response."""
    return sum(len(each.records or b"") for topic in response.responses for each in topic.partitions)


def _part(found: FetchResponse.FetchableTopicResponse.PartitionData, options: ReadOptions) -> Part:
    high = found.last_stable_offset if options.read_committed else found.high_watermark
    diverging = found.diverging_epoch
    return Part(
        found.error_code,
        found.log_start_offset,
        high,
        is_truncated=diverging is not None and diverging.end_offset >= 0,
    )


def _decoded(
    found: FetchResponse.FetchableTopicResponse.PartitionData, offset: int, size: int, options: ReadOptions
) -> Decoded:
    if not found.records:
        return Decoded([], offset)
    aborted = _aborted(found, options)
    return decode(found.records, offset, aborted, with_keys=options.with_keys, bytes_max=size)


def _check_progress(decoded: Decoded, offset: int) -> None:
    """Name the problem of the first records in a response, if no batch is whole: brokers send the first one whole (KIP-74)."""
    if decoded.next_offset == offset and not decoded.problem:
        decoded.problem = "its length does not match its bytes"


def _aborted(
    found: FetchResponse.FetchableTopicResponse.PartitionData, options: ReadOptions
) -> Sequence[Aborted] | None:
    if not options.read_committed:
        return None
    return [Aborted(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
