"""
Log compaction: performs the passes that `core.log.cleaning` decides.

`program` calls `run` periodically. A pass reads stored batches in steps of STEP_BYTES, decodes them in a thread, so that the event
loop goes on meanwhile, and writes each step's changes in one transaction of the store. Nothing else is kept of a pass until it
ends: after a crash, or when the log is reloaded, the next one begins at the log start, and what an earlier one has removed is gone
already. One pass runs at a time, so the index of keys is in memory once.
"""

import asyncio
from itertools import takewhile

from rota_coordinator.core.log import cleaning
from rota_coordinator.core.log.cleaning import CleaningPass, KeyIndex, PassBounds
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.runtime.overload import Refusal
from rota_coordinator.runtime.ownership import DedupedReporter
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.store.port import LogStore, StoreError
from rota_proto.log.columns import MalformedPayload

# Payload bytes of a step, but at least one batch.
STEP_BYTES = 256 * 1024
# Wait between two steps: the rest of the process gets most of the processor's time.
PAUSE_S = 0.02


class PassAbandoned(Exception):
    """The log was reloaded, or the topic was deleted, while a pass read its batches."""


class Compaction:
    """Compacts the partitions of topics with the cleanup policy `compact`, one after the other."""

    def __init__(self, log: TopicLog, store: LogStore) -> None:
        self._log = log
        self._store = store
        self._reporter = DedupedReporter(log.environment.report)

    async def run(self) -> None:
        """Compact each partition of which enough has changed."""
        for partition in list(self._log.core.partitions()):
            if not partition.retention.compacts:
                continue
            name = f"compaction of {partition.topic}-{partition.index}"
            try:
                await self._compact(partition)
            except PassAbandoned:
                continue
            except Refusal:
                return  # the log reports why it is not served
            except (StoreError, MalformedPayload) as error:
                self._reporter.failed(name, error)
            else:
                self._reporter.recovered(name)

    async def _compact(self, partition: Partition) -> None:
        """Run a pass, if one is due. Raises StoreError, MalformedPayload, Refusal and PassAbandoned."""
        environment = self._log.environment
        config = environment.config
        self._check(partition)
        if not await self._is_due(partition):
            return
        limits = cleaning.bounds(partition, config, environment.now_ms())
        index = KeyIndex(limits.dirty_start, config.compaction_keys_max)
        await self._fill(index, partition, limits)
        if index.until <= limits.dirty_start:
            return
        work = CleaningPass(index, limits.tombstones_until)
        await self._clean(work, partition, limits)
        delete_retention_ms = partition.retention.delete_retention_ms
        cleaned = cleaning.after_pass(partition.cleaned, work, environment.now_ms(), delete_retention_ms)
        await self._log.decide(lambda core, effects: core.cleaned(partition, cleaned, effects))

    async def _is_due(self, partition: Partition) -> bool:
        until = partition.last_stable_offset
        dirty_start = max(partition.cleaned.indexed_until, partition.start)
        dirty_bytes = await self._store.size_between(partition.log_id, dirty_start, until)
        if not dirty_bytes:
            return False
        total_bytes = await self._store.size_between(partition.log_id, partition.start, until)
        self._check(partition)
        return cleaning.is_due(dirty_bytes, total_bytes, self._log.environment.config)

    async def _fill(self, index: KeyIndex, partition: Partition, limits: PassBounds) -> None:
        """Index the keys of the dirty section, as far as it may be compacted and there is room."""
        has_room = True
        while has_room:
            rows = await self._store.read(partition.log_id, index.until, limits.end, STEP_BYTES)
            self._check(partition)
            batches = [
                cleaning.describe(row, partition, limits)
                for row in takewhile(lambda row: cleaning.is_cleanable(row, limits), rows)
            ]
            has_room = await asyncio.to_thread(index.add, batches)
            if not rows or len(batches) < len(rows):
                return
            await asyncio.sleep(PAUSE_S)

    async def _clean(self, work: CleaningPass, partition: Partition, limits: PassBounds) -> None:
        """Remove superseded records, from the log start to the end of the index."""
        offset = partition.start
        while offset < work.index.until:
            rows = await self._store.read(partition.log_id, offset, work.index.until, STEP_BYTES)
            self._check(partition)
            if not rows:
                return
            changes = await asyncio.to_thread(
                work.decide, [cleaning.describe(row, partition, limits) for row in rows]
            )
            self._check(partition)
            if changes:
                await self._log.rows.rewrite(self._log.core, partition.log_id, changes)
                self._check(partition)
            offset = rows[-1].header.next_offset
            await asyncio.sleep(PAUSE_S)

    def _check(self, partition: Partition) -> None:
        """Raise PassAbandoned unless the partition is part of the log that is served."""
        log = self._log
        is_served = log.state is SlotState.READY
        if not is_served or log.core.partition(partition.topic, partition.index) is not partition:
            raise PassAbandoned
