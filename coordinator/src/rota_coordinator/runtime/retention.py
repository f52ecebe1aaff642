"""Retention: performs what `core.log.retention` decides. `program` calls `run` periodically."""

from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.retention import new_start
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.topic_log import TopicLog
from rota_proto.log.v1.log_pb2 import DeleteRecordsRequest

# Batches of a partition that one step reads.
BATCHES_AT_ONCE = 1_000


class Retention:
    """Deletes records of all partitions beyond their retention time or size."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    async def run(self) -> None:
        """Apply retention to each partition, step by step."""
        for partition in list(self._log.core.partitions()):
            while self._log.state is SlotState.READY and await self._step(partition):
                pass

    async def _step(self, partition: Partition) -> bool:
        """Apply retention to a batch of rows; return whether more may have to be deleted."""
        if partition.retention_ms < 0 and partition.retention_bytes < 0:
            return False
        environment, log_id = self._log.environment, partition.log_id
        oldest = await environment.store.oldest(log_id, BATCHES_AT_ONCE)
        if partition.retention.compacts:
            size = await environment.store.size_between(log_id, 0, partition.end)
        else:
            size = await environment.store.size(log_id)
        start = new_start(partition, oldest, size, environment.now_ms())
        if start <= partition.start:
            return False
        moved = DeleteRecordsRequest.Partition(
            topic=partition.topic, index=partition.index, before_offset=start
        )
        await self._log.delete_records(DeleteRecordsRequest(partitions=[moved]))
        return True
