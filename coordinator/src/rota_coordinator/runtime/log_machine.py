"""The log core as a state machine of records, for its runtime; and what is loaded of the log beside its records."""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from rota_coordinator.core.log.log import Log
from rota_coordinator.runtime.replicated_state import StateMachine
from rota_coordinator.store.port import LogStore
from rota_proto.coordinator.v1.records_pb2 import Record


class LogMachine(StateMachine):
    """Invariant: all events are replayed before the first header."""

    def __init__(self, log: Log) -> None:
        self.log = log
        # Log id -> bytes of its rows when the log was loaded.
        self.sizes: Mapping[int, int] = {}
        # Log id -> end offset of its first row when the log was loaded.
        self._ends: dict[int, int] = {}

    @override
    def replay(self, record: Record) -> None:
        self.log.replay(record.log_event)

    @override
    def snapshot(self) -> Sequence[Record]:
        return [Record(log_event=event) for event in self.log.snapshot()]

    async def load_rows(self, store: LogStore) -> None:
        """Replay the headers of all stored rows, per log in offset order."""
        async for headers in store.headers():
            for log_id, header in headers:
                self.log.replay_batch(log_id, header)
                self._ends.setdefault(log_id, header.next_offset)
        self.sizes = await store.sizes()

    def left_behind(self) -> Mapping[int, int | None]:
        """Return the logs with rows whose deletion a crash interrupted, and the offset before which these end; None: all."""
        starts = {partition.log_id: partition.start for partition in self.log.partitions()}
        return {
            log_id: starts.get(log_id)
            for log_id, end in self._ends.items()
            if log_id not in starts or end <= starts[log_id]
        }
