"""
The rows of the log: makes stored rows visible to fetches, deletes and rewrites rows, and charges for them.

`topic_log` calls it after each decision, and again once the decision is stored; `compaction` rewrites rows.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from rota_coordinator.core.log.charges import LogCharges
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.log import Log
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.runtime.environments import LogEnvironment
from rota_coordinator.runtime.log_machine import LogMachine
from rota_coordinator.runtime.recent_rows import RecentRows
from rota_coordinator.runtime.replicated_state import Follow
from rota_coordinator.runtime.waiting_fetches import WaitingFetches
from rota_proto.log.v1.log_pb2 import DeleteRecordsResponse


class LogRows:
    """Invariant: consumers see stored rows only, and the creators of topics are charged for all stored rows."""

    def __init__(self, environment: LogEnvironment, follow: Follow[int]) -> None:
        # Cache that `fetches` reads before the store.
        self.recent = RecentRows()
        self.waiting = WaitingFetches()
        self._store = environment.store
        self._charges = LogCharges(environment.quotas)
        self._follow = follow

    def load(self, machine: LogMachine) -> None:
        """Charge for the rows of a loaded log, and delete those whose deletion a crash interrupted."""
        self._charges.load(machine.log.topics(), machine.sizes)
        for log_id, before_offset in machine.left_behind().items():
            self.drop(log_id, before_offset)

    def clear(self) -> None:
        """Forget all rows, and wake all fetches; the log is not served any more."""
        self._charges.clear()
        self.recent.clear()
        self.waiting.wake_all()

    def decided(self, log: Log, effects: Effects) -> None:
        """Charge for the effects of a decision that is being written, and delete the rows of deleted topics."""
        self._charges.decided(effects, log.topic)
        for log_id in effects.dropped:
            self.drop(log_id, None)

    def stored(self, log: Log, effects: Effects) -> None:
        """Let consumers read the rows of a decision, and wake fetches: of deleted topics too, which answer with an error."""
        log.written(effects.rows)
        self.recent.remember(effects.rows)
        self.waiting.wake({*effects.dropped, *(row.log_id for row in effects.rows)})

    def deleted(self, log: Log, reply: DeleteRecordsResponse) -> None:
        """Delete the rows before the new log start offsets."""
        for partition in reply.partitions:
            found = log.partition(partition.topic, partition.index)
            if not partition.error_code and isinstance(found, Partition):
                self.drop(found.log_id, found.start)

    def drop(self, log_id: int, before_offset: int | None) -> None:
        """Delete the rows of a log that end before the offset, or all, in the background."""
        # A deletion from before a reload stays charged until the next load.
        freed = partial(self._charges.dropped, log_id)
        work = self._store.drop_rows(log_id, before_offset)
        self._follow(work, freed, "rows to delete stay until the next retention check")

    def rewrite(self, log: Log, log_id: int, changes: Sequence[Change]) -> "asyncio.Future[int]":
        """
        Store the changes of one step of log compaction; the future completes with the bytes that they free. After a failure all
        that is known of the batches stays, and the next pass tries again.
        """
        work = self._store.rewrite_rows(log_id, changes)
        self._follow(work, partial(self._rewritten, log, log_id, changes), "")
        return work

    def _rewritten(self, log: Log, log_id: int, changes: Sequence[Change], freed_bytes: int) -> None:
        log.rewritten(log_id, [change.header for change in changes])
        self.recent.forget(log_id, [change.header.base_offset for change in changes])
        self._charges.dropped(log_id, freed_bytes)
