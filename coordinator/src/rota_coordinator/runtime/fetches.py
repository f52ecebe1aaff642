"""
Serve fetches: batches from an offset on, at once or as soon as new ones are written.

Called by `rpc.log_service`. A waiting fetch is woken by the write of new batches; it does not poll.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rota_coordinator.core.log.batch import Control, Row
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.sparse import is_sparse, split
from rota_coordinator.runtime.overload import MESSAGE_BYTES_MAX
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.store.port import DamagedBatch, LogStore, StoreError
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import CODEC, MalformedPayload
from rota_proto.log.compression import decompress, is_accepted
from rota_proto.log.v1 import log_pb2 as pb

WAIT_MS_MAX = 60_000
# Maximum payload bytes of one response; the rest of a message is reserved for its other fields.
BYTES_MAX = MESSAGE_BYTES_MAX - 512 * 1024
# Bytes of a batch in a response beside its payload, at most.
BATCH_BYTES = 96
Reply = pb.FetchResponse.Partition


@dataclass(slots=True)
class ResponseBudget:
    """The bytes and rows of a response under construction. Invariant: only its first batch may exceed the limit."""

    room: int
    # Codecs that the reader decodes; all readers decode 0.
    accepted_codecs: Collection[int] = ()
    size: int = 0
    # True after an error, or after offsets without visible records: the fetch then answers without waiting.
    must_reply: bool = False

    def fits(self, row: Row) -> bool:
        """Return whether the row fits into the response; the first batch always does."""
        return not self.size or len(row.payload) <= self.room

    def take(self, rows: Sequence[Row], overhead_bytes: int = 0) -> None:
        """Count rows as part of the response; `overhead_bytes` is what each of them takes besides its payload."""
        size = sum(len(row.payload) + overhead_bytes for row in rows)
        self.size += size
        self.room -= size


class Fetches:
    """Answers fetch requests from recent rows and from the store."""

    def __init__(self, log: TopicLog, store: LogStore) -> None:
        self._log = log
        self._store = store

    async def fetch(self, request: pb.FetchRequest) -> pb.FetchResponse:
        """
        Return batches from the requested offsets; waits for the minimum bytes, at most for the request's maximum wait.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + min(request.max_wait_ms, WAIT_MS_MAX) / 1000
        data_available = asyncio.Event()
        log_ids = [
            found.log_id for found in map(self._find, request.partitions) if isinstance(found, Partition)
        ]
        self._log.rows.waiting.add(log_ids, data_available)
        try:
            while True:
                data_available.clear()
                self._log.check_ready()
                reply, budget = await self._read(request)
                if budget.must_reply or budget.size >= max(request.min_bytes, 1) or loop.time() >= until_s:
                    return reply
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until_s):
                        await data_available.wait()
        finally:
            self._log.rows.waiting.remove(log_ids, data_available)

    def _find(self, asked: pb.FetchRequest.Partition) -> Partition | codes.ErrorCode.ValueType:
        return self._log.core.partition(asked.topic, asked.index, asked.topic_id)

    async def _read(self, request: pb.FetchRequest) -> tuple[pb.FetchResponse, ResponseBudget]:
        budget = ResponseBudget(
            min(request.max_bytes or BYTES_MAX, BYTES_MAX), frozenset(request.accepted_codecs)
        )
        reply = pb.FetchResponse()
        for asked in request.partitions:
            reply.partitions.append(await self._read_partition(asked, request.isolation_level, budget))
        return reply, budget

    async def _read_partition(
        self, asked: pb.FetchRequest.Partition, isolation: pb.IsolationLevel.ValueType, budget: ResponseBudget
    ) -> Reply:
        found = self._find(asked)
        reply = Reply(topic=asked.topic, index=asked.index, next_offset=asked.offset)
        if not isinstance(found, Partition):
            reply.error_code = found
            budget.must_reply = True
            return reply
        describe(found, reply)
        if not found.start <= asked.offset <= found.high_watermark:
            reply.error_code = codes.OFFSET_OUT_OF_RANGE
            budget.must_reply = True
            return reply
        if asked.offset < found.visible_end(isolation) and budget.room > 0:
            await self._read_batches(found, asked, isolation, budget, reply)
        return reply

    async def _read_batches(
        self,
        found: Partition,
        asked: pb.FetchRequest.Partition,
        isolation: pb.IsolationLevel.ValueType,
        budget: ResponseBudget,
        reply: Reply,
    ) -> None:
        room = min(budget.room, asked.max_bytes or budget.room)
        committed_only = isolation == pb.ISOLATION_LEVEL_READ_COMMITTED
        until = found.visible_end(isolation)
        try:
            stored = await self._rows(found, asked.offset, until, room)
        except StoreError as broken:
            budget.must_reply = True
            if not is_hidden_damage(found, broken, committed_only=committed_only):
                self._log.environment.report(
                    f"{asked.topic}-{asked.index} at offset {asked.offset}: {broken}"
                )
                fill_with_error(reply, broken, budget)
            if isinstance(broken, DamagedBatch) and broken.row is not None:
                reply.next_offset = broken.row.header.next_offset
            return
        if stored:
            await send(stored, room, partial(is_visible, found, committed_only=committed_only), budget, reply)
        elif found.retention.compacts:
            # Compaction has removed all records up to the end.
            reply.next_offset = until
            budget.must_reply = True

    async def _rows(self, partition: Partition, offset: int, until: int, max_bytes: int) -> Sequence[Row]:
        recent = self._log.rows.recent.read(partition.log_id, offset, until, max_bytes)
        if recent:
            return recent
        while True:
            rewrites = partition.rewrites
            rows = await self._store.read(partition.log_id, offset, until, max_bytes)
            if rewrites == partition.rewrites:
                return rows


async def send(
    stored: Sequence[Row],
    room: int,
    is_visible: Callable[[Row], bool],
    budget: ResponseBudget,
    reply: Reply,
) -> None:
    """Add rows to the response, from its `next_offset` on and within `room`, and set its next offset behind them."""
    rows, end = stored, stored[-1].header.next_offset
    if any(map(is_sparse, stored)):
        # Before the thread is awaited: compaction may forget aborted transactions whose batches it removes.
        visible = list(filter(is_visible, stored))
        rows, cut = await asyncio.to_thread(without_gaps, visible, reply.next_offset, room)
        end = end if cut is None else cut
    sent = decodable(rows, budget.accepted_codecs, room)
    if sent and not budget.fits(sent[0]):
        # The store returns at least one batch, which exceeds the budget; the next fetch returns it.
        return
    budget.take(sent, BATCH_BYTES if rows is not stored else 0)
    reply.batches.extend(map(to_batch, filter(is_visible, sent)))
    reply.next_offset = sent[-1].header.next_offset if len(sent) < len(rows) else end
    budget.must_reply = budget.must_reply or not reply.batches


def describe(partition: Partition, reply: Reply) -> None:
    """Fill in the offsets and the topic id of the partition."""
    reply.topic_id = partition.topic_id
    reply.log_start_offset = partition.start
    reply.high_watermark = partition.high_watermark
    reply.last_stable_offset = partition.last_stable_offset


def is_visible(partition: Partition, row: Row, *, committed_only: bool) -> bool:
    """Return whether consumers receive the batch."""
    if row.header.control is not Control.RECORDS:
        return False
    return not (committed_only and partition.is_aborted(row.header))


def without_gaps(rows: Sequence[Row], offset: int, max_bytes: int) -> tuple[list[Row], int | None]:
    """
    Return the records from an offset on, of sparse rows as rows without gaps: at least one, further ones within `max_bytes`.

    Also return the offset of the first row that was left out; None: it has all.
    """
    found: list[Row] = []
    for row in rows:
        for part in parts_of(row):
            if part.header.next_offset <= offset:
                continue
            max_bytes -= len(part.payload) + BATCH_BYTES
            if found and max_bytes < 0:
                return found, part.header.base_offset
            found.append(part)
    return found, None


def parts_of(row: Row) -> list[Row]:
    """Return the rows without gaps of a row; unchanged if a later version wrote it in a way that is unknown here."""
    try:
        return list(split(row)) if is_sparse(row) else [row]
    except MalformedPayload:
        # The reader's message names the batch.
        return [row]


def decodable(rows: Sequence[Row], accepted_codecs: Collection[int], max_bytes: int) -> Sequence[Row]:
    """
    Return the rows as the reader decodes them, decompressed where it does not: at least one, further ones within `max_bytes`.

    Readers of a version without compression accept no codec but 0.
    """
    if all(is_accepted(row.codec, accepted_codecs) for row in rows):
        return rows
    found: list[Row] = []
    for row in rows:
        read = row if is_accepted(row.codec, accepted_codecs) else uncompressed(row)
        max_bytes -= len(read.payload)
        if found and max_bytes < 0:
            break
        found.append(read)
    return found


def uncompressed(row: Row) -> Row:
    """Return the row with codec 0; unchanged if a later version wrote it with a codec that is unknown here."""
    try:
        return row._replace(codec=CODEC, payload=decompress(row.codec, row.payload))
    except MalformedPayload:
        # The reader's message names the batch.
        return row


def is_hidden_damage(partition: Partition, broken: StoreError, *, committed_only: bool) -> bool:
    """Return whether the damaged batch is one that consumers do not receive."""
    row = broken.row if isinstance(broken, DamagedBatch) else None
    return row is not None and not is_visible(partition, row, committed_only=committed_only)


def fill_with_error(reply: Reply, broken: StoreError, budget: ResponseBudget) -> None:
    """Set the error; for a damaged batch, include its stored bytes for recovery."""
    reply.error_code = codes.KAFKA_STORAGE_ERROR
    if isinstance(broken, DamagedBatch):
        reply.error_code = codes.CORRUPT_MESSAGE
        if broken.row is not None and budget.fits(broken.row):
            budget.take([broken.row])
            reply.batches.append(to_batch(broken.row))


def to_batch(row: Row) -> pb.RecordBatch:
    """Return the message of a stored batch."""
    header = row.header
    return pb.RecordBatch(
        base_offset=header.base_offset,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        count=header.count,
        codec=row.codec,
        payload=row.payload,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.transactional,
    )
