"""
Handle ListOffsets: the earliest offset, the latest offset, or the first at a timestamp. Called by `rpc.log_service`.
"""

from rota_coordinator.core.log.batch import Control, Row
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.sparse import is_sparse, split
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.store.port import LogStore, StoreError
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log import columns, compression
from rota_proto.log.v1 import log_pb2 as pb

END, START = -1, -2
NOT_FOUND = -1
Reply = pb.ListOffsetsResponse.Partition


class OffsetLookups:
    """Answers ListOffsets from the log's state and the store."""

    def __init__(self, log: TopicLog, store: LogStore) -> None:
        self._log = log
        self._store = store

    async def list_offsets(self, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
        """Return one offset for each requested partition."""
        self._log.check_ready()
        reply = pb.ListOffsetsResponse()
        for asked in request.partitions:
            reply.partitions.append(await self._look_up(asked, request.isolation_level))
        return reply

    async def _look_up(
        self, asked: pb.ListOffsetsRequest.Partition, isolation: pb.IsolationLevel.ValueType
    ) -> Reply:
        found = self._log.core.partition(asked.topic, asked.index)
        reply = Reply(topic=asked.topic, index=asked.index, offset=NOT_FOUND, timestamp_ms=NOT_FOUND)
        if not isinstance(found, Partition):
            reply.error_code = found
        elif asked.timestamp_ms == START:
            reply.offset = found.start
        elif asked.timestamp_ms == END:
            reply.offset = found.visible_end(isolation)
        else:
            try:
                await self._at(found, asked.timestamp_ms, found.visible_end(isolation), reply)
            except StoreError as broken:
                self._log.environment.report(f"{asked.topic}-{asked.index}: {broken}")
                reply.error_code = codes.KAFKA_STORAGE_ERROR
        return reply

    async def _at(self, partition: Partition, timestamp_ms: int, until: int, reply: Reply) -> None:
        """Fill in the first visible record with this timestamp or a later one."""
        header = await self._store.first_at(partition.log_id, timestamp_ms)
        if header is None or header.base_offset >= until:
            return
        if header.control is not Control.RECORDS:
            # A transaction marker is later than all records before it, so a consumer that starts there misses none.
            reply.offset, reply.timestamp_ms = header.base_offset, header.max_timestamp_ms
            return
        rewrites = partition.rewrites
        rows = await self._store.read(partition.log_id, header.base_offset, header.next_offset, 1)
        if rewrites != partition.rewrites:
            # Compaction may have removed the record that was found.
            await self._at(partition, timestamp_ms, until, reply)
            return
        for row in rows[:1]:
            try:
                found = first_at(row, timestamp_ms)
            except columns.MalformedPayload:
                # Appended by an older version without validation, or by a later one with another codec.
                reply.error_code = codes.CORRUPT_MESSAGE
                return
            if found is not None:
                # A log start offset within the batch hides the records before it.
                reply.offset = max(found[0], partition.start)
                reply.timestamp_ms = found[1]


def first_at(row: Row, timestamp_ms: int) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record of a batch at or after a timestamp; None: all are earlier."""
    for part in split(row) if is_sparse(row) else [row]:
        header = part.header
        payload = compression.decompress(part.codec, part.payload)
        found = columns.first_at(payload, header.count, header.base_timestamp_ms, timestamp_ms)
        if found is not None:
            return header.base_offset + found[0], found[1]
    return None
