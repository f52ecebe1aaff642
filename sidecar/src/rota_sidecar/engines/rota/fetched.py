"""Translates Fetch responses of the embedded log into results of fetches. Used by `reading.py`; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.columns import CODEC, Columns, MalformedPayload, pack
from rota_proto.log.compression import UnknownCodec, decompress
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed, Unreadable
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.engines.batch_slicing import check, columns_in
from rota_sidecar.engines.records import UNLIMITED, FetchLimits, FetchRequest

# The minimum size of a record in memory: a pointer in a column.
RECORD_BYTES = 8
Part = log_pb2.FetchResponse.Partition


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of the reader."""

    read_committed: bool
    # Batches have the keys of their records.
    with_keys: bool
    limits: FetchLimits = UNLIMITED


@dataclass(slots=True)
class Track:
    """The state of a partition in one delivery epoch. Invariant: `topic_id`, once known, never changes."""

    delivery_epoch: int
    topic_id: bytes = b""
    bounds: Bounds | None = None
    # Bytes in the log for each byte in the sidecar's memory, in the last batches: below 1 where batches are compressed.
    stored_share: float = 1.0
    # The topic id is unknown to the log: the next fetch is by name and shows whether the topic was recreated.
    doubted: bool = False

    @property
    def is_urgent(self) -> bool:
        """Return true if the log should respond at once, also without records."""
        return self.bounds is None or self.doubted

    def stored_bytes(self, bytes_max: int) -> int:
        """Return the bytes to fetch, as the log counts them, for about `bytes_max` bytes in memory."""
        return max(int(bytes_max * self.stored_share), 1)


def result_of(
    part: Part, request: FetchRequest, track: Track, options: ReadOptions
) -> Read | ReadFailed | None:
    """Return the result of a fetch for its part of the response; None: nothing changed, the fetch continues."""
    if part.error_code == pb.UNKNOWN_TOPIC_ID and not track.doubted:
        track.doubted = True
        return None
    if part.error_code:
        return _failed(part, request, track)
    if track.topic_id and part.topic_id != track.topic_id:
        message = (
            "the topic was deleted and recreated, so committed offsets of the old topic are invalid; "
            "reset the group's offsets"
        )
        return ReadFailed(request.delivery_epoch, FetchError.OTHER_TOPIC, message)
    track.topic_id, track.doubted = part.topic_id, False
    return _read(part, request, track, options)


def _read(part: Part, request: FetchRequest, track: Track, options: ReadOptions) -> Read | ReadFailed | None:
    end = part.last_stable_offset if options.read_committed else part.high_watermark
    bounds = Bounds(part.log_start_offset, end)
    next_offset = max(request.offset, part.next_offset)
    batches: list[Batch] = []
    size = stored = 0
    for each in part.batches:
        if each.control or each.base_offset + each.count <= request.offset:
            continue
        try:
            batches.append(batch_of(each, request.offset, with_keys=options.with_keys))
        except MalformedPayload as error:
            if not batches:
                return _corrupt(part, request, each, str(error))
            # The batches before it are returned first; the next fetch begins with it.
            next_offset = each.base_offset
            break
        size += batches[-1].size
        stored += len(each.payload)
        if size > request.bytes_max:
            # Batches may be much larger here than in the log: compressed ones, and those of equal records. The next fetch
            # returns the others.
            next_offset = batches[-1].end
            break
    if not batches and next_offset == request.offset and bounds == track.bounds:
        return None
    track.bounds = bounds
    if size:
        track.stored_share = min(stored / size, 1.0)
    return Read(request.delivery_epoch, batches, next_offset, bounds)


def _corrupt(part: Part, request: FetchRequest, found: log_pb2.RecordBatch | None, why: str) -> ReadFailed:
    """Return the failure for an unreadable batch, with its bytes if the log has sent them."""
    after = request.offset + 1 if found is None else found.base_offset + found.count
    message = (
        f"the batch at offset {request.offset} cannot be read ({why}); have its bytes written to a dead-letter topic, or "
        f"skip it with `rota topics delete-records {part.topic} --partition {part.index} --before {after}`, which "
        "deletes all records before that offset"
    )
    reason = f"the batch at offset {request.offset} cannot be read ({why})"
    unreadable = None if found is None else Unreadable(raw_batch(found, request.offset), after, reason)
    return ReadFailed(request.delivery_epoch, FetchError.CORRUPT, message, unreadable)


def raw_batch(found: log_pb2.RecordBatch, offset: int) -> Batch:
    """Return a batch of one record, whose value is the unreadable payload and whose headers describe the unreadable batch."""
    headers = [
        ("rota-batch-base-offset", b"%d" % found.base_offset),
        ("rota-batch-count", b"%d" % found.count),
        ("rota-batch-codec", b"%d" % found.codec),
    ]
    columns = Columns(values=[found.payload], headers=[headers])
    content = log_pb2.RecordBatch(
        base_offset=offset,
        base_timestamp_ms=found.base_timestamp_ms,
        max_timestamp_ms=found.base_timestamp_ms,
        count=1,
        codec=CODEC,
        payload=pack(columns, 1, found.base_timestamp_ms),
        producer_id=-1,
    )
    return Batch(offset, 1, len(content.payload), content, [None])


def decompressed(found: log_pb2.RecordBatch) -> log_pb2.RecordBatch:
    """Return a copy of a batch, decompressed. Raises MalformedPayload."""
    # Copied: a reference to one batch would keep the whole response in memory.
    content = log_pb2.RecordBatch()
    content.CopyFrom(found)
    if found.codec != CODEC:
        try:
            content.codec, content.payload = CODEC, decompress(found.codec, found.payload)
        except UnknownCodec as error:
            raise MalformedPayload(f"{error}; update the sidecar") from error
    return content


def batch_of(found: log_pb2.RecordBatch, offset: int, *, with_keys: bool) -> Batch:
    """Return the batch with its records from the offset on. Raises MalformedPayload."""
    content = decompressed(found)
    check(content)
    skipped = max(offset - content.base_offset, 0)
    count = content.count - skipped
    keys: Sequence[bytes | None] | None = None
    if with_keys:
        known = columns_in(content).keys
        keys = [None] * count if known is None else known[skipped:]
    size = max(len(content.payload), count * RECORD_BYTES)
    return Batch(content.base_offset + skipped, count, size, content, keys)


def _failed(part: Part, request: FetchRequest, track: Track) -> ReadFailed:
    match part.error_code:
        case pb.CORRUPT_MESSAGE:
            found = part.batches[0] if part.batches else None
            return _corrupt(part, request, found, "it is damaged in the coordinator's file")
        case pb.OFFSET_OUT_OF_RANGE:
            # The response has the bounds too.
            message = (
                f"offset {request.offset} is out of range, the log has {part.log_start_offset} to "
                f"{part.high_watermark}; reset the group's offsets, or set what the group does with an offset out of range"
            )
            return ReadFailed(request.delivery_epoch, FetchError.OUT_OF_RANGE, message)
        case pb.UNKNOWN_TOPIC_OR_PARTITION | pb.UNKNOWN_TOPIC_ID:
            state = "was deleted" if track.topic_id else "does not exist"
            message = f"it {state}; create the topic, or remove it from the group's subscription"
            return ReadFailed(request.delivery_epoch, FetchError.UNKNOWN_TOPIC, message)
        case pb.TOPIC_AUTHORIZATION_FAILED:
            message = "not authorized to read its topic; allow this client to consume it"
            return ReadFailed(request.delivery_epoch, FetchError.DENIED, message)
        case _:
            name = pb.ErrorCode.Name(part.error_code)
            message = f"the log responds with {name}; see its log"
            return ReadFailed(request.delivery_epoch, FetchError.UNREACHABLE, message)
